"""Data module and batches: contents, bad utterances counted, draws, workers, resuming."""

import dataclasses
import math
import re
from pathlib import Path

import lightning
import numpy as np
import pytest
import soundfile
import torch

from asr_ascend.config.frames import encoder_frames
from asr_ascend.data import filtering
from asr_ascend.data.audio import load_audio
from asr_ascend.data.features import FeatureStatistics, LogMel
from asr_ascend.data.manifest import ManifestError, load_manifest, write_manifest
from tests.support.data_module import make_data_module

TEXTS = ["ab", "ba", "abba", "b", "a b", "bab", "aab", "bba"]
CLEAN = {"noise_clips": 4, "noise_clip_seconds": 1.0}
NOISY = {**CLEAN, "noise_probability": 0.8, "spec_augment": {}}


def make_module(train, valid, **changes):
    module = make_data_module(train, valid, **{**CLEAN, **changes})
    module.setup("fit")
    return module


def batches_by_id(batches):
    """Features of each utterance by id, without padding."""
    return {
        name: batch.features[row, : batch.feature_lengths[row]]
        for batch in batches
        for row, name in enumerate(batch.ids)
    }


@pytest.fixture
def manifests(tone_corpus):
    return tone_corpus("train", TEXTS), tone_corpus("valid", ["ab", "bx"])


def test_a_batch_holds_raw_log_mel_and_ids(manifests):
    module = make_module(*manifests, max_batch_seconds=3.0)
    utterances = {u.id: u for u in load_manifest(manifests[0])}
    log_mel = LogMel()
    seen = []
    for batch in module.train_dataloader():
        assert batch.features.dtype == torch.float32
        assert batch.feature_lengths.dtype == batch.targets.dtype == torch.int64
        assert batch.num_skipped == {}
        for row, name in enumerate(batch.ids):
            expected = log_mel(load_audio(utterances[name].audio_path))
            length = int(batch.feature_lengths[row])
            torch.testing.assert_close(batch.features[row, :length], expected)
            assert bool((batch.features[row, length:] == 0).all())
            target = batch.targets[row, : batch.target_lengths[row]]
            assert module.tokenizer.decode(target) == utterances[name].text
            assert bool((batch.targets[row, batch.target_lengths[row] :] == 0).all())
        seen += batch.ids
    assert sorted(seen) == sorted(utterances)


def test_spans_of_a_recording_train_as_files_of_their_own_would(manifests, tmp_path):
    utterances = load_manifest(manifests[0])
    pieces = [soundfile.read(u.audio_path, dtype="int16")[0] for u in utterances]
    soundfile.write(tmp_path / "long.wav", np.concatenate(pieces), 16000)
    spans, start = [], 0
    for utterance, piece in zip(utterances, pieces, strict=True):
        where = {"audio_path": tmp_path / "long.wav", "offset": start / 16000}
        spans.append(dataclasses.replace(utterance, **where))
        start += len(piece)
    write_manifest(tmp_path / "spans.jsonl", spans)
    files = make_module(*manifests)
    module = make_module(tmp_path / "spans.jsonl", manifests[1])
    assert module.skipped == files.skipped
    expected = batches_by_id(files.train_dataloader())
    found = batches_by_id(module.train_dataloader())
    assert sorted(found) == sorted(expected) == sorted(u.id for u in utterances)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_cmvn_is_that_of_the_clean_training_set(manifests):
    module = make_module(*manifests, **NOISY)
    utterances = load_manifest(manifests[0])
    expected = FeatureStatistics.from_utterances(
        LogMel()(load_audio(u.audio_path)) for u in utterances
    )
    torch.testing.assert_close(module.cmvn.mean, expected.mean)
    torch.testing.assert_close(module.cmvn.std, expected.std)
    # What SpecAugment hides is 0 after normalisation.
    torch.testing.assert_close(module.train_dataset.spec_augment.fill, expected.mean)


def test_given_tokenizer_and_cmvn_are_kept(manifests):
    first = make_module(*manifests, blank=-1)
    cmvn = FeatureStatistics(torch.zeros(80), torch.ones(80))
    second = make_module(*manifests, tokenizer=first.tokenizer, cmvn=cmvn, blank=0)
    assert second.tokenizer is first.tokenizer
    assert second.cmvn is cmvn


def rewrite(manifest, **changes):
    """Manifest with utterances replaced by number: train0={"text": ""}."""
    utterances = [dataclasses.replace(u, **changes.get(u.id, {})) for u in load_manifest(manifest)]
    write_manifest(manifest, utterances)


def test_what_the_manifest_shows_is_skipped_and_counted(manifests):
    rewrite(
        manifests[0],
        train0={"text": ""},
        train1={"text": "  "},
        train2={"duration": 0.0},
        train3={"duration": 21.0},
        train4={"text": "a" * 15},  # 28 encoder frames in 1.2 s; 15 equal tokens need 29
        train5={"text": "aq"},
    )
    message = re.escape(
        "Skipped 5 (2 empty text, 1 more tokens than encoder frames, 1 no audio, 1 too long: "
        "`data.max_utterance_seconds` is 20) "
        f"of 8 utterances of {manifests[0]}."
    )
    with pytest.warns(UserWarning, match=f"^{message}$"):
        module = make_module(*manifests)
    assert module.skipped == {
        "train": {
            filtering.EMPTY_TEXT: 2,
            filtering.NO_AUDIO: 1,
            filtering.TOO_LONG: 1,
            filtering.TOO_FEW_FRAMES: 1,
        },
        "valid": {},
    }
    ids = sorted(i for batch in module.train_dataloader() for i in batch.ids)
    assert ids == ["train5", "train6", "train7"]
    assert "Skipped of train: 5 (2 empty text, 1 more tokens than" in module.describe()


def test_unknown_characters_are_skipped_in_training_and_kept_in_validation(manifests):
    tokenizer = make_module(*manifests).tokenizer
    rewrite(manifests[0], train5={"text": "aq"})
    with pytest.warns(UserWarning, match=r"^Skipped 1 \(1 character unknown to the tokenizer\) "):
        module = make_module(*manifests, tokenizer=tokenizer)
    assert module.skipped["train"] == {filtering.UNKNOWN_CHARACTER: 1}
    (batch,) = module.val_dataloader()
    assert batch.ids == ["valid0", "valid1"]
    assert tokenizer.unk in batch.targets[1]


def test_a_lattice_that_no_batch_may_hold_is_skipped(manifests):
    # V = 5; 1.00 s: 98 feature frames, 23 encoder frames; train2, "abba", 1.1 s: 26 * 5 * 5 * 4.
    with pytest.warns(UserWarning, match=r"1 lattice larger than a batch may be"):
        module = make_module(*manifests, max_lattice_bytes=2599)
    assert module.skipped["train"] == {filtering.LATTICE_TOO_LARGE: 1}
    assert module.train_dataset.limits.vocab_size == 5


def test_what_loading_shows_is_skipped_and_counted(manifests):
    module = make_module(*manifests)
    folder = manifests[0].parent
    (folder / "train0.wav").write_text("broken")
    (folder / "train1.wav").unlink()
    soundfile.write(folder / "train2.wav", torch.zeros(0).numpy(), 16000)
    soundfile.write(folder / "train3.wav", torch.zeros(16000 * 3).numpy(), 16000)
    soundfile.write(folder / "train4.wav", torch.zeros(900).numpy(), 16000)
    module.train_dataset._cache.clear()
    with pytest.warns(UserWarning) as warned:
        batch = module.train_dataset[(0, range(8))]
    assert batch.ids == ["train5", "train6", "train7"]
    assert batch.features.shape[0] == batch.targets.shape[0] == 3
    assert batch.num_skipped == {
        filtering.UNREADABLE: 2,
        filtering.NO_AUDIO: 1,
        filtering.LONGER_THAN_STATED: 1,
        filtering.TOO_FEW_FRAMES: 1,
    }
    told = sorted(str(item.message) for item in warned)
    assert told[1] == (
        f"Skipped utterance 'train1': {folder / 'train1.wav'} cannot be read as audio: "
        "there is no such file"
    )
    assert told[3] == "Skipped utterance 'train3': audio longer than the manifest says"


def test_a_batch_of_which_nothing_is_left_is_empty(manifests):
    module = make_module(*manifests)
    for path in Path(manifests[0].parent).glob("train*.wav"):
        path.unlink()
    module.train_dataset._cache.clear()
    with pytest.warns(UserWarning, match="there is no such file"):
        batch = module.train_dataset[(0, range(8))]
    assert batch.features.shape == (0, 0, 80)
    assert batch.targets.shape == (0, 0)
    assert batch.feature_lengths.shape == batch.target_lengths.shape == (0,)
    assert (batch.ids, batch.num_skipped) == ([], {filtering.UNREADABLE: 8})


def test_draws_depend_on_seed_epoch_and_id_alone(manifests):
    module = make_module(*manifests, **NOISY)
    dataset = module.train_dataset
    whole = batches_by_id([dataset[(3, range(8))]])
    alone = batches_by_id(dataset[(3, [i])] for i in (5, 1, 0, 7, 6, 2, 3, 4))
    for name, features in whole.items():
        assert torch.equal(features, alone[name])
    other_epoch = batches_by_id([dataset[(4, range(8))]])
    assert not any(torch.equal(whole[name], other_epoch[name]) for name in whole)
    other_seed = make_module(*manifests, **NOISY, seed=1, cmvn=module.cmvn)
    other = batches_by_id([other_seed.train_dataset[(3, range(8))]])
    assert not any(torch.equal(whole[name], other[name]) for name in whole)


def test_noise_probability_and_snr(manifests):
    module = make_module(
        *manifests, noise_probability=0.5, snr_db=(3.0, 3.0), noise_clips=4, noise_clip_seconds=1.0
    )
    clean = batches_by_id([make_module(*manifests).train_dataset[(0, range(8))]])
    noisy = 0
    for epoch in range(25):
        for name, features in batches_by_id([module.train_dataset[(epoch, range(8))]]).items():
            noisy += not torch.equal(features, clean[name])
    assert 70 <= noisy <= 130  # 200 draws of 0.5; 4 standard deviations are 28


def test_workers_and_global_random_state_change_nothing(manifests):
    draws = torch.get_rng_state()
    alone = list(make_module(*manifests, **NOISY, max_batch_seconds=3.0).train_dataloader())
    workers = make_module(*manifests, **NOISY, max_batch_seconds=3.0, num_workers=2)
    together = list(workers.train_dataloader())
    assert len(alone) == len(together) > 2
    for first, second in zip(alone, together, strict=True):
        assert first.ids == second.ids
        assert torch.equal(first.features, second.features)
        assert torch.equal(first.targets, second.targets)
    assert torch.equal(draws, torch.get_rng_state())


@pytest.mark.parametrize("num_workers", [0, 2])
def test_position_counts_consumed_batches_not_prefetched_ones(manifests, num_workers):
    module = make_module(*manifests, max_batch_seconds=1.5, num_workers=num_workers)
    loader = module.train_dataloader()
    loader.sampler.set_epoch(2)
    whole = [batch.ids for batch in loader]
    iterator = iter(loader)
    first = [next(iterator).ids for _ in range(3)]
    state = loader.state_dict()
    assert (state["epoch"], state["consumed"]) == (2, 3)
    resumed = module.train_dataloader()
    resumed.load_state_dict(state)
    resumed.sampler.set_epoch(2)
    assert first + [batch.ids for batch in resumed] == whole
    # After the resumed epoch the next iterator starts at the beginning.
    assert [batch.ids for batch in resumed] == whole


def test_validation_noise_is_fixed(manifests):
    module = make_module(*manifests, valid_snr_db=0.0)
    first, second = list(module.val_dataloader()), list(module.val_dataloader())
    assert torch.equal(first[0].features, second[0].features)
    clean = next(iter(make_module(*manifests).val_dataloader()))
    assert clean.ids == first[0].ids
    assert not torch.equal(first[0].features, clean.features)


def test_audio_cache_is_bounded(manifests):
    size = round(1.0 * 16000) * 4
    module = make_module(*manifests, cache_audio_bytes=size)
    assert list(module.train_dataset._cache) == [0]
    assert torch.equal(
        module.train_dataset.audio(0), load_audio(manifests[0].parent / "train0.wav")
    )


class _Recorder(lightning.LightningModule):
    """Counts nothing but what it is given."""

    def __init__(self, stop_after=None):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen = []
        self.valid = []
        self.stop_after = stop_after

    def training_step(self, batch, batch_idx):
        self.seen.append((self.current_epoch, batch_idx, tuple(batch.ids), batch.features.sum()))
        return self.weight * batch.features.mean()

    def on_train_batch_end(self, outputs, batch, batch_idx):
        if self.stop_after is not None and len(self.seen) == self.stop_after:
            self.trainer.save_checkpoint(Path(self.trainer.default_root_dir) / "stopped.ckpt")
            raise KeyboardInterrupt

    def validation_step(self, batch, batch_idx):
        self.valid.append(float(batch.features.sum()))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)


def fit(manifests, folder, module, ckpt_path=None):
    trainer = lightning.Trainer(
        default_root_dir=folder, max_epochs=3, accelerator="cpu", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        use_distributed_sampler=False,
    )  # fmt: skip
    data = make_data_module(*manifests, **NOISY, max_batch_seconds=3.0, valid_snr_db=5.0, blank=-1)
    try:
        trainer.fit(module, datamodule=data, ckpt_path=ckpt_path)
    except (KeyboardInterrupt, SystemExit):
        assert module.stop_after is not None
    return len(data.train_dataloader())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_lightning_resumes_within_an_epoch_exactly(manifests, tmp_path, place):
    unbroken = _Recorder()
    per_epoch = fit(manifests, tmp_path, unbroken)
    assert len(unbroken.seen) == 3 * per_epoch
    assert len({row[2:3] for row in unbroken.seen}) > per_epoch
    stop_after = per_epoch + {"first": 1, "middle": 2, "last": per_epoch}[place]
    stopped = _Recorder(stop_after)
    fit(manifests, tmp_path, stopped)
    resumed = _Recorder()
    fit(manifests, tmp_path, resumed, ckpt_path=tmp_path / "stopped.ckpt")
    assert stopped.seen + resumed.seen == unbroken.seen
    assert len(set(unbroken.valid)) == len(make_module(*manifests).val_dataloader())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"snr_db": [5.0]},
            "`data.snr_db` must be a list of 2 values, each a number in [-200, 200], but is [5.0].",
        ),
        (
            {"snr_db": [5.0, -5.0]},
            "`data.snr_db` must be a lowest and a highest SNR, but is [5.0, -5.0].",
        ),
        (
            {"noise_probability": 1.5},
            "`data.noise_probability` must be a number in [0, 1], but is 1.5.",
        ),
        (
            {"max_batch_seconds": 0.0},
            "`data.max_batch_seconds` must be a number above 0, but is 0.0.",
        ),
        (
            {"max_utterance_seconds": -1.0},
            "`data.max_utterance_seconds` must be a number above 0, but is -1.0.",
        ),
        (
            {"spec_augment": {"max_freq_bins": -1}},
            "`data.spec_augment.max_freq_bins` must be an integer of at least 0, but is -1.",
        ),
    ],
)
def test_argument_errors(changes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make_data_module("a.jsonl", "b.jsonl", **changes)


def test_set_up_errors(manifests, tmp_path):
    with pytest.raises(RuntimeError, match=r"^`setup` must be called before batches are asked for"):
        make_data_module(*manifests).train_dataloader()
    with pytest.raises(ManifestError, match="it cannot be read"):
        make_module(tmp_path / "none.jsonl", manifests[1])
    rewrite(manifests[1], valid0={"text": ""}, valid1={"duration": 0.0})
    message = (
        "`valid_manifest` must have a usable utterance, but skipped 2 (1 empty text, 1 no audio) "
        f"of 2 utterances of {manifests[1]}."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make_module(*manifests)


@pytest.mark.parametrize(
    ("frames", "expected"), [(0, 0), (2, 0), (6, 0), (7, 1), (10, 1), (11, 2), (100, 24)]
)
def test_encoder_frames(frames, expected):
    assert encoder_frames(frames) == expected
    if frames >= 7:
        features = torch.zeros(1, 1, frames, 9)
        twice = torch.nn.Conv2d(1, 1, 3, 2)
        assert twice(twice(features)).shape[2] == expected


def test_ctc_needs_a_frame_between_equal_tokens():
    assert [filtering.frames_needed(t) for t in ([], [1], [1, 2], [1, 1], [1, 1, 1, 2, 2])] == [
        *(0, 1, 2, 3),
        8,
    ]
    assert math.isinf(
        float(
            torch.nn.functional.ctc_loss(
                torch.zeros(7, 1, 3).log_softmax(-1),
                torch.tensor([[1, 1, 1, 2, 2]]),
                torch.tensor([7]),
                torch.tensor([5]),
            )
        )
    )
