"""Checkpoints from strangers: one sentence, no code run, no memory for what isn't in the file."""

import copy
import io
import math
import pickle
import random
import zipfile
from pathlib import Path

import pytest
import torch

from asr_ascend.checkpoints import checkpoint, outline
from asr_ascend.checkpoints.average import average_checkpoints
from asr_ascend.checkpoints.checkpoint import CheckpointError, load_model, read_checkpoint
from asr_ascend.checkpoints.outline import TensorOutline, read_outline
from asr_ascend.checkpoints.warm_start import WarmStart
from asr_ascend.config.model_options import ModelOptions
from asr_ascend.data.tokenizer import Tokenizer
from asr_ascend.models import build_transducer
from tests.checkpoints.test_checkpoint_files import MODEL

POSITION = {"epoch": 1, "consumed": 2, "num_batches": 4, "fingerprint": "0a"}


@pytest.fixture(scope="module")
def sound():
    """What a training writes, with one value of each kind."""
    tokenizer = Tokenizer.train(["甲乙丙"], blank=-1)
    model = build_transducer(tokenizer.vocab_size, tokenizer.blank, ModelOptions.read(MODEL))
    moments = {"step": torch.tensor(7.0), "exp_avg": torch.zeros(2, 3)}
    return {
        "epoch": 1,
        "global_step": 7,
        "pytorch-lightning_version": "2.6.6",
        "state_dict": {f"model.{key}": value for key, value in model.state_dict().items()},
        "loops": {"fit_loop": {"state_dict": {"combined_loader": [POSITION]}}},
        "callbacks": {
            "Checkpoints": {"best": [[0.5, "best-step000007-cer50.00.ckpt"]]},
            "EarlyStopping": {"best": 0.5, "waited": 1},
            "NonfiniteSteps": {"recent": [3], "count": 1},
        },
        "optimizer_states": [{"state": {0: moments}, "param_groups": [{"lr": 1.0, "params": [0]}]}],
        "lr_schedulers": [{"last_epoch": 7, "base_lrs": [1.0], "lr_lambdas": [None]}],
        checkpoint.KEY: checkpoint.describe(tokenizer, {"model": MODEL, "seed": 1}),
    }


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_model(path)
    told = str(caught.value)
    assert "\n" not in told and len(told) < 700
    return told


def places(value, so_far=()):
    yield so_far
    if isinstance(value, dict | list | tuple):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*so_far, key))


def changed(root, place, value):
    if not place:
        return value
    made = list(root) if isinstance(root, tuple) else copy.copy(root)
    made[place[0]] = changed(made[place[0]], place[1:], value)
    return made


WRONG = (
    *(None, True, -1, 2**70, 10**12, 1e308, math.nan, "x", "x" * 70000, "../../x.ckpt", [], {}),
    *([[1]], {"a": 1}, {1: 2}, torch.zeros(()), torch.zeros(3, dtype=torch.uint8)),
)


def test_the_sound_one_is_read(sound, tmp_path):
    torch.save(sound, tmp_path / "a.ckpt")
    assert load_model(tmp_path / "a.ckpt").step == 7
    assert WarmStart.read(tmp_path / "a.ckpt").tokenizer.vocab_size == 5
    outlined = read_outline(tmp_path / "a.ckpt")
    assert outlined["optimizer_states"][0]["state"][0]["exp_avg"] == TensorOutline((2, 3), "Float")
    assert outlined["loops"] == sound["loops"]


@pytest.mark.parametrize("seed", range(4))
def test_any_field_of_another_type_is_used_or_refused_in_a_sentence(sound, tmp_path, seed):
    draws = random.Random(seed)
    known = [place for place in places(sound) if place]
    path, good = tmp_path / "fuzzed.ckpt", tmp_path / "good.ckpt"
    torch.save(sound, good)
    for _ in range(30):
        torch.save(changed(sound, draws.choice(known), draws.choice(WRONG)), path)
        for use in (
            load_model,
            WarmStart.read,
            lambda file: average_checkpoints([file, good]),
            lambda file: average_checkpoints([good, file]),
        ):
            try:
                use(path)
            except CheckpointError as error:
                assert "\n" not in str(error) and len(str(error)) < 700


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (
            ("callbacks", "Checkpoints", "best", 0, 1),
            "../../../precious.ckpt",
            "`callbacks.Checkpoints.best[0][1]` must be a name such as "
            "best-step000500-cer3.21.ckpt, but is '../../../precious.ckpt'.",
        ),
        (("global_step",), "7", f"`global_step` must be an integer in [0, {2**53}], but is '7'."),
        (
            ("state_dict", "model.joiner.output.bias"),
            7,
            "`state_dict.model.joiner.output.bias` must be a tensor, but is 7.",
        ),
        (
            ("optimizer_states", 0, "state", 0, "exp_avg"),
            torch.zeros(1, dtype=torch.int64),
            "`optimizer_states[0].state.0.exp_avg` must be a tensor of floats, but is a tensor.",
        ),
        (
            ("loops", "fit_loop", "state_dict", "combined_loader", 0, "consumed"),
            None,
            "`loops.fit_loop.state_dict.combined_loader[0].consumed` must be an integer in "
            f"[-1, {2**53}], but is null.",
        ),
        (
            (checkpoint.KEY, "tokenizer", "model"),
            torch.zeros(4),
            "`asr_ascend.tokenizer.model` must be a tensor of bytes with one dimension, but is a "
            "tensor.",
        ),
        (
            (checkpoint.KEY, "config"),
            [],
            "`asr_ascend.config` must be a group, but is [].",
        ),
    ],
)
def test_a_wrong_field_is_named(sound, tmp_path, place, value, sentence):
    """A run removes checkpoints by the names in `best`, so none of them may leave its folder."""
    path = tmp_path / "a.ckpt"
    torch.save(changed(sound, place, value), path)
    assert refusal(path) == f"{path} is damaged: its {sentence}"


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("joiner_dim", 2**40, "."),
        ("encoder_dim", 2**62, ": no tensor can be as large as its config says."),
        ("num_layers", 10**9, ": it has 52 tensors for 1000000000 layers."),
        ("predictor_context", 10**12, "."),
        ("max_relative_position", 10**12, "."),
    ],
)
def test_a_config_of_a_giant_takes_no_memory(sound, tmp_path, key, value, sentence):
    path = tmp_path / "a.ckpt"
    count = len(sound["state_dict"])
    torch.save(changed(sound, (checkpoint.KEY, "config", "model"), {**MODEL, key: value}), path)
    assert refusal(path) == (
        f"The weights in {path} don't fit the model that its config describes"
        + sentence.replace("52", str(count))
    )


def test_a_giant_rate_takes_no_memory(sound, tmp_path):
    path = tmp_path / "a.ckpt"
    config = {"model": MODEL, "data": {"sample_rate_hz": 10**12}}
    torch.save(changed(sound, (checkpoint.KEY, "config"), config), path)
    assert refusal(path) == (
        f"The config in {path} can't be read: `data.sample_rate_hz` must be a multiple of 100 in "
        "[8000, 384000], but is 1000000000000."
    )


def test_a_tokenizer_that_is_none_is_one_sentence(sound, tmp_path):
    path = tmp_path / "a.ckpt"
    rubbish = torch.arange(100, dtype=torch.uint8)
    torch.save(changed(sound, (checkpoint.KEY, "tokenizer", "model"), rubbish), path)
    assert refusal(path).startswith(f"The tokenizer in {path} can't be read: ")


def rewritten(path: Path, change, compression: int = zipfile.ZIP_STORED) -> None:
    """Writes a checkpoint's archive again, its pickle as `change` makes it."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in parts.items():
            archive.writestr(name, change(content) if name.endswith("data.pkl") else content)


def big(number: int) -> bytes:
    return pickle.dumps(number, 2)[2:-1]


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [  # of a tensor (2, 3): its shape and strides, then the elements of its storage
        (b"K\x02K\x03\x86", big(2**40) + b"K\x03\x86", "it states a tensor of 1099511627776x3"),
        (b"K\x03K\x01\x86", big(2**50) + b"K\x01\x86", "it states a tensor of 2x3 elements"),
        (b"K\x03K\x01\x86", b"K\x00K\x00\x86", None),  # all of them the first: as large as its file
        (
            b"K\x06t",
            big(2**40) + b"t",
            "its storage '0' states 4,398,046,511,104 bytes, but has 24",
        ),
        (b"K\x02K\x03\x86", b"J\xff\xff\xff\xffK\x03\x86", "it holds a tensor whose sizes"),
    ],
)
def test_a_tensor_must_lie_whole_in_the_file(tmp_path, before, after, reason):
    path = tmp_path / "a.ckpt"
    torch.save({"a": torch.ones(2, 3)}, path)

    def change(pickled: bytes) -> bytes:
        assert before in pickled
        return pickled.replace(before, after, 1)

    rewritten(path, change)
    if reason is None:
        assert read_outline(path) == {"a": TensorOutline((2, 3), "Float")}
        return
    told = refusal(path)
    assert told.startswith(f"{path} is not a checkpoint of asr_ascend: {reason}")


@pytest.mark.parametrize(
    ("pickled", "reason"),
    [
        (
            b"\x80\x02cbuiltins\nbytearray\n\x8a\x06\x00\x00\x00\x00\x00\x01\x85R.",
            "it calls builtins.bytearray, and weights need no such code",
        ),
        (b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R.", "it calls posix.system, and "),
        (b"\x80\x02(i__main__\nA\n.", "its data.pkl has the opcode INST, which torch doesn't"),
        (b"\x80\x02}" + b"X\x00\x00\x01\x00" + b"x" * 2**16 + b"Ns.", None),
        (b"\x80\x02X\x01\x00\x01\x00" + b"x" * (2**16 + 1) + b".", "it holds a string of 65,537"),
        (b"\x80\x02]q\x00(" + b"h\x00" * 20 + b"e.", "it holds more values, or deeper ones, than"),
        (b"\x80\x02]" + b"\x85" * 40 + b".", "it holds more values, or deeper ones, than"),
        (b"\x80\x02", "its data.pkl is damaged"),
        (b"\x80\x02h\x07.", "its data.pkl is damaged"),
        (b"", "its data.pkl is damaged"),
    ],
)
def test_a_pickle_of_anything_else_is_one_sentence(tmp_path, pickled, reason):
    path = tmp_path / "a.ckpt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
    told = refusal(path)
    start = f"{path} is not a checkpoint of asr_ascend"
    assert told.startswith(f"{start}: {reason}" if reason else f"{start}.")


def test_lists_that_hold_each_other_a_billion_times_are_one_sentence(tmp_path):
    path = tmp_path / "a.ckpt"
    laugh: list = []
    for _ in range(20):
        laugh = [laugh] * 10
    torch.save({"a": laugh}, path)
    assert "it holds more values, or deeper ones, than any model has" in refusal(path)


def test_a_compressed_archive_is_one_sentence(sound, tmp_path):
    path = tmp_path / "a.ckpt"
    torch.save(sound, path)
    rewritten(path, lambda pickled: pickled, zipfile.ZIP_DEFLATED)
    assert refusal(path).endswith("' is compressed.")


def test_a_flipped_bit_in_the_weights_is_one_sentence(sound, tmp_path):
    """torch.load doesn't compare checksums."""
    path = tmp_path / "a.ckpt"
    torch.save(sound, path)
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        part = max(
            archive.infolist(), key=lambda part: part.file_size * ("/data/" in part.filename)
        )
    content[part.header_offset + 200] ^= 1
    path.write_bytes(content)
    assert "its archive is damaged" in refusal(path)


@pytest.mark.parametrize("seed", range(3))
def test_any_damaged_byte_is_found_or_harmless(sound, tmp_path, seed):
    draws = random.Random(seed)
    whole = io.BytesIO()
    torch.save(sound, whole)
    path = tmp_path / "a.ckpt"
    for _ in range(30):
        content = bytearray(whole.getvalue())
        if draws.random() < 0.3:
            del content[draws.randrange(len(content)) :]
        for _ in range(draws.choice((1, 20))):
            if content:
                content[draws.randrange(len(content))] = draws.randrange(256)
        path.write_bytes(content)
        try:
            read_checkpoint(path)
        except CheckpointError as error:
            assert "\n" not in str(error) and len(str(error)) < 700


def test_the_bounds_are_far_above_a_large_model():
    """118 million parameters in 1,500 tensors, with two moments each, take 80,000 values."""
    assert outline._MOST_VALUES > 20 * 80_000
