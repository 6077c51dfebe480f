"""docs/npu_time_model.md holds what the script measures; the sums of the model are right."""

import importlib.util
import sys
from pathlib import Path

import pytest

from tests.support import compiling

OPERATOR = Path(__file__).resolve().parents[3] / "kernels" / "rnnt_loss_fused"
DOCUMENT = OPERATOR.parents[1] / "docs" / "npu_time_model.md"


def load_script():
    path = OPERATOR / "time_model" / "tables.py"
    spec = importlib.util.spec_from_file_location("tables", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["tables"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


tables = load_script()


def test_a_core_is_bound_by_copies_or_by_instructions() -> None:
    copying = tables.Work(bytes=32 * 1.8e6, instructions=10, repeats=100, scalars=10)
    assert copying.seconds(1) == pytest.approx(1e-3)
    computing = tables.Work(bytes=32, instructions=100_000, repeats=180_000, scalars=2_500)
    assert computing.seconds(1) == pytest.approx((180_000 + 1_600_000 + 20_000) / 1.8e9)
    assert computing.seconds(0) == pytest.approx((180_000 + 800_000 + 10_000) / 1.8e9)


def test_model_of_both_plans() -> None:
    shape = tables.Shape(((10, 3),) * 4, vocab=1000)
    assert shape.rows == 160
    row = tables.Work(bytes=0, repeats=1.8e6)  # one millisecond a row
    lattice = (tables.Work(repeats=3.6e6), tables.Work(repeats=5.4e6))
    times = tables.milliseconds(row, {(10, 3): lattice}, shape, 1)
    assert times["rows"] == pytest.approx(160 / 40)
    assert times["lattice"] == pytest.approx(3)
    assert times["total"] == pytest.approx(7)
    assert times["alone"] == pytest.approx(40 + 2 + 3)
    assert times["limit"] == pytest.approx(3 * 160 * 1000 * 4 / 1.6e12 * 1e3)


def test_more_lattice_tasks_than_cores() -> None:
    shape = tables.Shape(((1, 0),) * 41, vocab=2)
    lattice = (tables.Work(repeats=1.8e6), tables.Work(repeats=1.8e6))
    times = tables.milliseconds(tables.Work(), {(1, 0): lattice}, shape, 1)
    assert times["lattice"] == pytest.approx(3)  # 82 tasks on 40 cores
    assert times["alone"] == pytest.approx(4)  # two utterances on one of the cores


def test_ragged_batch() -> None:
    shape = tables.Shape(((10, 3), (5, 1)), vocab=2, dtype="float16")
    assert str(shape) == "2 x 10 x 3 x 2 ragged, float16"
    assert shape.rows == 50 and shape.logits_bytes == 200
    long, short = tables.Work(repeats=3.6e6), tables.Work(repeats=1.8e6)
    lattice_of = {(10, 3): (long, long), (5, 1): (short, short)}
    times = tables.milliseconds(tables.Work(repeats=1.8e6), lattice_of, shape, 1)
    assert times["rows"] == pytest.approx(50 / 40)
    assert times["lattice"] == pytest.approx(2)  # each of the four on a core of its own
    assert times["alone"] == pytest.approx(40 + 4)


def test_replaced() -> None:
    text = "a\n<!-- memory -->\nold\n<!-- end -->\nb\n"
    assert tables.replaced(text, "memory", ["x", "y"]) == (
        "a\n<!-- memory -->\nx\ny\n<!-- end -->\nb\n"
    )


@pytest.fixture(scope="module")
def meter() -> object:
    includes = [OPERATOR.parent / "emulator", OPERATOR]
    return tables.Meter(compiling.program("measure", tables.SOURCES, includes=includes))


@pytest.mark.parametrize(
    ("dtype", "vocab", "length"),
    [
        ("float32", 2, (1100, 1023)),  # the longest diagonal that the tiling lets through
        ("bfloat16", 3, (1030, 1023)),
        ("float32", 9152, (3, 2)),  # the longest row that fits UB, and one more
        ("float32", 9153, (3, 2)),
        ("float16", 12224, (3, 2)),
        ("float16", 12225, (3, 2)),
    ],
)
def test_largest_tiles_fit_the_chip(
    meter: object, dtype: str, vocab: int, length: tuple[int, int]
) -> None:
    """The emulator refuses a kernel whose buffers are more than UB."""
    run = meter.run(dtype, 2, vocab, [length])
    assert run["rows"] == length[0] * (length[1] + 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", tables.TABLES)
def test_document_is_up_to_date(meter: object, name: str) -> None:
    document = DOCUMENT.read_text()
    assert tables.replaced(document, name, tables.TABLES[name](meter)) == document
