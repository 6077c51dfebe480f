"""What makes a run another run, and what doesn't."""

import pytest

from asr_ascend.training import fingerprint as module
from asr_ascend.training.fingerprint import fingerprint

NAMES = {
    "train.py": True,
    "evaluate.py": False,
    "training/module.py": True,
    "losses/joiner/loss.py": True,
    "data/dataset.py": True,
    "data/report.py": True,
    "data/importing/report.py": False,
    "data/synthesis/corpus.py": False,
    "evaluation/report.py": False,
    "config/rules.py": True,
}
CONFIG = {"seed": 1, "output_dir": "a", "resume": False}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of the package's layout, with a file of each kind."""
    for name in NAMES:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("1\n", encoding="utf-8")
    monkeypatch.setattr(module, "PACKAGE", tmp_path)
    return tmp_path


@pytest.mark.parametrize(("name", "counts"), NAMES.items())
def test_sources_count_if_they_train(package, name, counts):
    before = fingerprint(CONFIG, [])
    (package / name).write_text("2\n", encoding="utf-8")
    assert (fingerprint(CONFIG, []) != before) == counts


def test_the_config_counts_except_for_where_a_run_lies(package):
    before = fingerprint(CONFIG, [])
    assert fingerprint({**CONFIG, "output_dir": "b", "resume": True}, []) == before
    assert fingerprint({**CONFIG, "seed": 2}, []) != before


def test_the_first_checkpoint_counts(package, tmp_path):
    path = tmp_path / "base.ckpt"
    path.write_bytes(b"1")
    before = fingerprint(CONFIG, [path])
    path.write_bytes(b"2")
    assert fingerprint(CONFIG, [path]) != before


def test_every_place_that_is_named_is_there():
    for name in (*module.TRAINING, *module.MAKES_MANIFESTS):
        assert (module.PACKAGE / name).exists(), name
