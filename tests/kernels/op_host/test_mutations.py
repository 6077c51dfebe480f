"""Every fault that mutate.py plants in the kernel makes a test of tests/kernels/operator fail."""

import importlib.util
import sys
from pathlib import Path

import pytest

OPERATOR = Path(__file__).resolve().parents[3] / "kernels" / "rnnt_loss_fused"


def load_script():
    spec = importlib.util.spec_from_file_location("mutate", OPERATOR / "tests" / "mutate.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutate"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


mutate = load_script()
MUTATIONS = {mutation.name: mutation for mutation in mutate.MUTATIONS}


@pytest.mark.parametrize("name", MUTATIONS)
def test_text_occurs_once(name: str, tmp_path: Path) -> None:
    mutation = MUTATIONS[name]
    source = OPERATOR / "op_kernel" / mutation.file
    target = tmp_path / mutate.KERNEL / mutation.file
    target.parent.mkdir(parents=True)
    target.write_text(source.read_text())
    mutate.apply(mutation, tmp_path)
    assert target.read_text() != source.read_text()


def test_text_that_is_missing_is_an_error(tmp_path: Path) -> None:
    target = tmp_path / mutate.KERNEL / "file.h"
    target.parent.mkdir(parents=True)
    target.write_text("a b b")
    for text, count in (("c", 0), ("b", 2)):
        with pytest.raises(ValueError) as error:
            mutate.apply(mutate.Mutation("fault", "file.h", text, ""), tmp_path)
        assert str(error.value) == (
            f"The text of `fault` must occur once in file.h, but occurs {count} times."
        )


def test_readme_has_the_table_of_what_caught_them() -> None:
    readme = (OPERATOR / "README.md").read_text()
    for name, mutation in MUTATIONS.items():
        assert f"| {name} | `{mutation.file}` | `test_" in readme


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_sources_as_they_are_pass(tmp_path: Path) -> None:
    mutate.copy_sources(tmp_path)
    assert mutate.run_tests(tmp_path) == mutate.Outcome(True, "", "")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", MUTATIONS)
def test_mutation_is_noticed(name: str) -> None:
    outcome = mutate.try_mutation(MUTATIONS[name])
    assert not outcome.passed, f"no test noticed: {name}"
