"""The memory floor does the work that it stands for."""

import pytest
import torch

from benchmarks import floor


@pytest.fixture(scope="module", autouse=True)
def compiler():
    try:
        floor.library()
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [64, 16384, 100_032])
def test_sums_exp_and_writes_it(size, threads):
    logits = torch.randn(size, generator=torch.Generator().manual_seed(0))
    expected = logits.double().exp()
    written = logits.clone()
    assert floor.run(written, threads) == pytest.approx(float(expected.sum()), rel=1e-5)
    torch.testing.assert_close(written.double(), expected / torch.e, rtol=2e-5, atol=0)


def test_leaves_what_is_beyond_alone():
    logits = torch.ones(200)
    floor.run(logits[:128], 1)
    assert torch.equal(logits[128:], torch.ones(72))
    torch.testing.assert_close(logits[:128], torch.ones(128), rtol=1e-5, atol=0)


def test_wants_float32():
    with pytest.raises(ValueError, match=r"^`logits` must be contiguous float32\.$"):
        floor.run(torch.ones(64, dtype=torch.float16))


def test_a_compiler_that_fails_is_an_error_with_its_first_line(tmp_path, monkeypatch):
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\necho 'no such option' >&2\necho more >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    monkeypatch.setattr(floor, "FOLDER", tmp_path / "build")
    floor.library.cache_clear()
    try:
        with pytest.raises(RuntimeError) as caught:
            floor.library()
    finally:
        floor.library.cache_clear()
    assert str(caught.value) == "the memory floor can't be built: no such option"
    assert list((tmp_path / "build").iterdir()) == []


def test_a_compiler_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", str(tmp_path / "nowhere"))
    monkeypatch.setattr(floor, "FOLDER", tmp_path / "build")
    floor.library.cache_clear()
    try:
        with pytest.raises(RuntimeError, match=r"the memory floor can't be built: .*nowhere"):
            floor.library()
    finally:
        floor.library.cache_clear()
