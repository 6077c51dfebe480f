"""Which sources a training depends on."""

import pytest

from asr_ascend.training import identity as module
from asr_ascend.training.identity import source_digest

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
    before = source_digest()
    (package / name).write_text("2\n", encoding="utf-8")
    assert (source_digest() != before) == counts


def test_every_place_that_is_named_is_there():
    for name in (*module.TRAINING, *module.MAKES_MANIFESTS):
        assert (module.PACKAGE / name).exists(), name
