"""`loss.band`: the cells that a training step computes, the simple joiner, and larger batches."""

import random

import pytest
import torch

import asr_ascend.train
import asr_ascend.training.objective
from asr_ascend.checkpoints.checkpoint import load_model, read_checkpoint
from asr_ascend.checkpoints.warm_start import WarmStart
from asr_ascend.config.composing import compose_config
from asr_ascend.config.rules import ConfigError
from asr_ascend.data.filtering import FULL_LATTICE, LatticeBound
from asr_ascend.data.tokenizer import Tokenizer
from asr_ascend.losses import lattice_band
from asr_ascend.losses.layout import band_columns
from asr_ascend.models import build_transducer
from asr_ascend.training.lattice_bands import LatticeBands, full_band, lattice_bound
from asr_ascend.training.objective import Losses, Objective
from tests.support.tiny_runs import TINY, write_corpus
from tests.training.test_training_step import (
    assert_same_gradients,
    empty_batch,
    make_batch,
    one_step,
)

SIMPLE = "loss.band=simple", "loss.alignment_frames=null"
ALL_COLUMNS = *SIMPLE, "loss.symbols_per_frame=100"


@pytest.fixture
def tokenizer():
    return Tokenizer.train(["甲乙丙丁戊"], blank=0)


@pytest.mark.parametrize("joiner", ["fused", "packed"])
@pytest.mark.parametrize("overrides", [(), ("loss.delay_penalty=0.1", "loss.clamp=0.5")])
def test_ctc_and_full_train_the_same(tokenizer, overrides, joiner):
    batches = [make_batch([0, 1, 2]), make_batch([3])]
    banded, full = (
        one_step(tokenizer, batches, f"loss.band={band}", f"loss.joiner={joiner}", *overrides)
        for band in ("ctc", "full")
    )
    for key in ("loss", "rnnt_loss", "ctc_loss", "grad_norm"):
        expected = pytest.approx(full.last_step_metrics[key], rel=1e-5)
        assert banded.last_step_metrics[key] == expected
    assert banded.last_step_metrics["simple_loss"] == ""
    assert_same_gradients(banded, full)


def test_a_delay_penalty_reaches_the_loss(tokenizer):
    plain, early = (
        one_step(tokenizer, [make_batch([0, 1])], f"loss.delay_penalty={penalty}")
        for penalty in (0.0, 1.0)
    )
    assert plain.last_step_metrics["rnnt_loss"] != early.last_step_metrics["rnnt_loss"]


@pytest.mark.parametrize("joiner", ["fused", "packed"])
def test_a_pruned_band_of_all_columns_is_the_full_loss(tokenizer, joiner):
    batches = [make_batch([0, 1, 2]), make_batch([3])]
    joined = f"loss.joiner={joiner}"
    pruned = one_step(tokenizer, batches, joined, *ALL_COLUMNS, "loss.simple_warmup_steps=0")
    full = one_step(tokenizer, batches, joined, "loss.band=full", "loss.alignment_frames=null")
    metrics, wanted = pruned.last_step_metrics, full.last_step_metrics
    for key in ("rnnt_loss", "ctc_loss"):
        assert metrics[key] == pytest.approx(wanted[key], rel=1e-5)
    assert metrics["loss"] == pytest.approx(wanted["loss"] + 0.5 * metrics["simple_loss"], rel=1e-5)
    # Output and projections of the joiner know nothing of the simple one.
    largest = max(float(g.abs().max()) for g in full.gradients.values())
    for name in [name for name in full.gradients if name.startswith("model.joiner")]:
        torch.testing.assert_close(
            pruned.gradients[name], full.gradients[name], rtol=1e-3, atol=1e-5 * largest
        )
    for name in ("am.weight", "am.bias", "lm.weight", "lm.bias"):
        assert pruned.gradients[f"model.simple_heads.{name}"].any()


def test_pruning_leaves_alignments_out_in_both_joiners_alike(tokenizer):
    batch = [make_batch([0, 1, 2, 3])]
    options = *SIMPLE, "loss.symbols_per_frame=2", "loss.delay_penalty=0.01"
    fused, packed = (
        one_step(tokenizer, batch, *options, f"loss.joiner={joiner}")
        for joiner in ("fused", "packed")
    )
    for key in ("loss", "rnnt_loss", "simple_loss", "grad_norm"):
        expected = pytest.approx(packed.last_step_metrics[key], rel=1e-5)
        assert fused.last_step_metrics[key] == expected
    assert_same_gradients(fused, packed)
    everything = one_step(tokenizer, batch, *ALL_COLUMNS, "loss.delay_penalty=0.01")
    assert fused.last_step_metrics["rnnt_loss"] > everything.last_step_metrics["rnnt_loss"]
    assert fused.last_step_metrics["simple_loss"] == pytest.approx(
        everything.last_step_metrics["simple_loss"], rel=1e-6
    )


def test_the_warm_up_is_icefalls(tokenizer):
    """https://github.com/k2-fsa/icefall, zipformer/train.py, `compute_loss`, read in 2026."""
    config = compose_config("train", [*TINY, *SIMPLE, "loss.simple_warmup_steps=100"])
    bands = LatticeBands(torch.nn.Module(), 0, config.loss)
    assert bands.scales(0) == (pytest.approx(0.1), 1.0)
    assert bands.scales(50) == (pytest.approx(0.55), 0.75)
    assert bands.scales(100) == bands.scales(None) == (1.0, 0.5)
    step = one_step(tokenizer, [make_batch([0, 1])], *SIMPLE).last_step_metrics
    want = 0.1 * step["rnnt_loss"] + step["simple_loss"] + 0.5 * step["ctc_loss"]
    assert step["loss"] == pytest.approx(want, rel=1e-6)
    model = build_transducer(7, 0, config.model)
    objective = Objective(model, 0, config.loss, config.distillation, teacher=None)
    assert objective.total(Losses(8.0, 3.0, simple=2.0), 100) == 3.0 + 0.5 * 2.0 + 0.5 * 8.0


@pytest.mark.parametrize("batch", [make_batch([0, 1]), empty_batch()], ids=["ctc_only", "empty"])
def test_steps_without_the_transducers_loss_touch_the_simple_heads(tokenizer, batch):
    step = one_step(tokenizer, [batch], *SIMPLE, "loss.ctc_first=1.0")
    assert step.last_step_metrics["simple_loss"] == ""
    for name in ("am.weight", "lm.bias"):
        assert not step.gradients[f"model.simple_heads.{name}"].any()


def test_the_bound_of_a_band_holds():
    draws = random.Random(0)
    for _ in range(200):
        early, late = draws.randint(0, 3), draws.randint(0, 6)
        labels, frames = draws.randint(1, 12), draws.randint(12, 40)
        heard = torch.tensor([sorted(draws.sample(range(frames), labels))])
        if draws.random() < 0.1:
            heard.zero_()  # what CTC says of an utterance that it can't align
        windows = torch.stack([heard - early, heard + late], -1)
        sizes = torch.tensor([frames]), torch.tensor([labels])
        band = lattice_band(windows, *sizes, on_empty="widen")
        rows = int(band_columns(band, sizes[0]).sum())
        bound = LatticeBound(window_frames=early + 1 + late).rows(frames, labels)
        assert rows <= bound <= frames * (labels + 1)
    assert LatticeBound(symbols_per_frame=5).rows(20, 3) == 80
    assert LatticeBound(symbols_per_frame=5).rows(20, 9) == 100


@pytest.mark.parametrize(
    ("overrides", "bound"),
    [
        ((), LatticeBound(window_frames=7)),
        (("loss.alignment_frames=[2,3]",), LatticeBound(window_frames=6)),
        (("loss.alignment_frames=null",), FULL_LATTICE),
        (("loss.band=full",), FULL_LATTICE),
        ((*SIMPLE, "loss.symbols_per_frame=4"), LatticeBound(symbols_per_frame=4)),
        (("distillation.teacher=t.ckpt", "loss.joiner=packed"), FULL_LATTICE),
    ],
)
def test_what_bounds_a_batch(overrides, bound):
    config = compose_config("train", [*TINY, *overrides])
    assert lattice_bound(config) == bound


def test_full_band():
    band = full_band(torch.tensor([3, 2]), torch.tensor([1, 4]))
    assert band.tolist() == [[[0, 1]] * 3, [[0, 4]] * 3]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["loss.band=simple"],
            "`loss.alignment_frames` must be null where `loss.band` is simple, since the pruned "
            "band may leave its windows, but is [1, 5].",
        ),
        (
            [*SIMPLE, "loss.am_only_scale=0.8"],
            "`loss.lm_only_scale` and `loss.am_only_scale` must be at most 1 together, but are "
            "0.25 and 0.8.",
        ),
        (
            [*SIMPLE, "loss.symbols_per_frame=1"],
            "`loss.symbols_per_frame` must be an integer of at least 2, but is 1.",
        ),
        (["loss.band=half"], "`loss.band` must be one of ctc, simple, full, but is 'half'."),
    ],
)
def test_refused(overrides, message):
    with pytest.raises(ConfigError) as raised:
        compose_config("train", [*TINY, *overrides])
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["loss.delay_penalty=0.5"],
            "`loss.delay_penalty` must be 0 on an NPU, whose operator has none yet, but is 0.5.",
        ),
    ],
)
def test_refused_on_an_npu(overrides, message):
    loss = compose_config("train", [*TINY, *overrides]).loss
    with pytest.raises(ConfigError) as raised:
        asr_ascend.train._check_backend(loss, "npu")
    assert str(raised.value) == message


def test_a_run_its_checkpoint_and_what_starts_from_it(tmp_path, monkeypatch, capsys):
    """Training has the heads, use has none, and a warm start takes what it needs."""
    monkeypatch.chdir(tmp_path)
    manifest = write_corpus(tmp_path / "corpus")
    short = "trainer.max_epochs=1", "loss.ctc_first=0", f"data.train_manifest={manifest}"
    arguments = [*TINY, *short, "trainer.progress_bar=false", "seed=3"]
    assert asr_ascend.train.main(compose_config("train", [*arguments, *SIMPLE])) == 0
    assert "MiB of joiner output in the band" in capsys.readouterr().err
    path = tmp_path / "outputs" / "smoke" / "checkpoints" / "last.ckpt"
    saved = read_checkpoint(path)["state_dict"]
    heads = {name for name in saved if name.startswith("model.simple_heads.")}
    assert len(heads) == 4
    trained = load_model(path)
    assert trained.model.simple_heads is None

    start = WarmStart.read(path)
    options, size = trained.options.model, trained.tokenizer.vocab_size
    for wanted in (True, False):
        model = build_transducer(size, 0, options, simple_heads=wanted)
        start.load_into(model, trained.tokenizer)
        assert (model.simple_heads is not None) == wanted
    fresh = build_transducer(size, 0, options, simple_heads=True)
    start.load_into(fresh, trained.tokenizer)
    assert torch.equal(fresh.simple_heads.am.weight, saved["model.simple_heads.am.weight"])

    plain = [*arguments, "name=plain", "output_dir=outputs/plain", "loss.alignment_frames=null"]
    assert asr_ascend.train.main(compose_config("train", plain)) == 0
    without = tmp_path / "outputs" / "plain" / "checkpoints" / "last.ckpt"
    assert not any("simple_heads" in name for name in read_checkpoint(without)["state_dict"])
    again = [*arguments, *SIMPLE, "name=again", "output_dir=outputs/again", f"init_from={without}"]
    assert asr_ascend.train.main(compose_config("train", again)) == 0
