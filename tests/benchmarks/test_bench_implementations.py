"""Every implementation that is compared gives the right numbers through its adapter."""

import importlib.util
import sys

import pytest
import torch

from asr_ascend.losses import rnnt_loss_and_grad
from benchmarks import antidiagonal, cases, checks
from benchmarks.cases import BLANK, CASES, Case
from benchmarks.implementations import IMPLEMENTATIONS, absent
from tests.support import fake_peers


def logits_of(case, implementation):
    logits = torch.empty(case.shape(implementation.layout), dtype=implementation.dtype)
    case.fill(logits)
    return logits


def checked(case, name):
    implementation = IMPLEMENTATIONS[name]
    call = implementation.prepare(case.indices())
    return checks.check(implementation, case, *call(logits_of(case, implementation)), whole=True)


@pytest.mark.parametrize(
    "name", ["in-place", "no-reuse", "float16", "bfloat16", "torch", "torchaudio"]
)
def test_is_right_here(tiny, name):
    numbers = checked(tiny, name)
    assert numbers["value_error"] < 1e-6
    assert numbers["gradient_error"] <= numbers["gradient_error_allowed"]


@pytest.mark.parametrize("name", fake_peers.FAKES)
def test_is_called_as_documented(tiny, name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, fake_peers.FAKES[name]())
    assert checked(tiny, name)["gradient_error"] < 1e-6


def test_in_place_takes_the_memory_of_the_logits(tiny):
    for name, shares in {"in-place": True, "no-reuse": False}.items():
        implementation = IMPLEMENTATIONS[name]
        logits = logits_of(tiny, implementation)
        _, gradient = implementation.prepare(tiny.indices())(logits)
        assert (gradient.data_ptr() == logits.data_ptr()) is shares


def test_plain_torch_is_the_definition(tiny):
    logits = torch.empty(tiny.padded_shape, dtype=torch.float64)
    logits.normal_(generator=torch.Generator().manual_seed(5))
    expected = rnnt_loss_and_grad(logits, *tiny.indices(), BLANK, backend="reference")
    logits.requires_grad_()
    costs = antidiagonal.rnnt_loss(logits, *tiny.indices(), BLANK)
    (gradient,) = torch.autograd.grad(costs.sum(), logits)
    torch.testing.assert_close((costs.detach(), gradient), expected)


def test_absent_names_what_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "fast_rnnt", fake_peers.fast_rnnt())
    reasons = absent()
    assert "fast_rnnt" not in reasons
    installed = importlib.util.find_spec("warprnnt_pytorch") is not None
    assert installed or reasons["warprnnt_pytorch"] == "not installed"


def test_absent_tells_a_broken_package_from_a_missing_one(monkeypatch, tmp_path):
    (tmp_path / "fast_rnnt.py").write_text("raise ImportError('built for another torch\\nmore')")
    monkeypatch.syspath_prepend(tmp_path)
    assert absent()["fast_rnnt"] == "can't be imported: built for another torch"


def test_cases_are_those_of_the_design():
    shapes = {name: str(case) for name, case in CASES.items()}
    assert shapes == {
        "S1": "4 x 200 x 50 x 50",
        "S2": "8 x 500 x 100 x 500",
        "S3": "16 x 1000 x 200 x 500",
        "S4": "2 x 500 x 100 x 5000",
        "RAG": "16 x 204..980 x 59..194 x 500",
    }
    assert CASES["S2"].rows == 8 * 500 * 101


def test_padded_and_packed_hold_the_same_logits(tiny):
    packed, padded = (logits_of(tiny, IMPLEMENTATIONS[name]) for name in ("in-place", "torch"))
    assert packed.shape == (54, 11) and padded.shape == (3, 9, 4, 11)
    for b in range(3):
        rows = tiny.sample_logits(b, torch.float32)
        assert torch.equal(tiny.sample_of(packed, b), rows)
        assert torch.equal(tiny.sample_of(padded, b), rows)
    assert padded[0, 5:].abs().max() == 0 and padded[2, :, 1:].abs().max() == 0


def test_logits_repeat_after_a_block(monkeypatch):
    block = torch.arange(100.0)
    monkeypatch.setattr(cases, "BLOCK_ELEMENTS", 100)
    monkeypatch.setattr(cases, "_block", lambda dtype: block.to(dtype))
    case = Case("long", (6, 6), (4, 4), 7)  # 420 logits
    logits = torch.empty(case.shape("packed"))
    case.fill(logits)
    assert torch.equal(logits.view(-1), block.repeat(5)[:420])
    assert torch.equal(case.sample_logits(1, torch.float32), logits[30:])
