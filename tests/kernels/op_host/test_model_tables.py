"""docs/npu_time_model.md holds what the script measures; the sums of the model are right."""

import json

import pytest

from kernels.rnnt_loss_fused.time_model import model, tables
from kernels.rnnt_loss_fused.time_model.shapes import Shape
from tests.support import compiling


def test_a_core_is_bound_by_copies_or_by_instructions() -> None:
    copying = model.Work(bytes=32 * 1.8e6, instructions=10, repeats=100, scalars=10)
    assert copying.seconds(1) == pytest.approx(1e-3)
    computing = model.Work(
        bytes=32, instructions=100_000, repeats=180_000, scalars=2_500, waits=1_000
    )
    assert computing.seconds(1) == pytest.approx((180_000 + 1_600_000 + 20_000 + 16_000) / 1.8e9)
    assert computing.seconds(0) == pytest.approx((180_000 + 800_000 + 10_000 + 8_000) / 1.8e9)


def test_model_of_both_plans() -> None:
    shape = Shape(((10, 3),) * 4, vocab=1000)
    assert shape.rows == 160
    row = model.Work(bytes=0, repeats=1.8e6)  # one millisecond a row
    lattice = (model.Work(repeats=3.6e6), model.Work(repeats=5.4e6))
    times = model.milliseconds(row, {(10, 3): lattice}, shape, 1)
    assert times["rows"] == pytest.approx(160 / 40)
    assert times["lattice"] == pytest.approx(3)
    assert times["total"] == pytest.approx(7)
    assert times["alone"] == pytest.approx(40 + 2 + 3)
    assert times["limit"] == pytest.approx(3 * 160 * 1000 * 4 / 1.6e12 * 1e3)


def test_more_lattice_tasks_than_cores() -> None:
    shape = Shape(((1, 0),) * 41, vocab=2)
    lattice = (model.Work(repeats=1.8e6), model.Work(repeats=1.8e6))
    times = model.milliseconds(model.Work(), {(1, 0): lattice}, shape, 1)
    assert times["lattice"] == pytest.approx(3)  # 82 tasks on 40 cores
    assert times["alone"] == pytest.approx(4)  # two utterances on one of the cores


def test_ragged_batch() -> None:
    shape = Shape(((10, 3), (5, 1)), vocab=2, dtype="float16")
    assert str(shape) == "2 x 10 x 3 x 2 ragged, float16"
    assert shape.rows == 50 and shape.logits_bytes == 200
    long, short = model.Work(repeats=3.6e6), model.Work(repeats=1.8e6)
    lattice_of = {(10, 3): (long, long), (5, 1): (short, short)}
    times = model.milliseconds(model.Work(repeats=1.8e6), lattice_of, shape, 1)
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
    includes = [tables.EMULATOR, tables.OPERATOR]
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
def test_kept_tables_are_what_the_emulator_counts(meter: object, name: str) -> None:
    assert json.loads(tables.RESULTS.read_text())[name] == tables.TABLES[name](meter)


@pytest.mark.parametrize("name", tables.TABLES)
def test_document_is_made_of_the_kept_tables(name: str) -> None:
    kept = json.loads(tables.RESULTS.read_text())[name]
    document = tables.DOCUMENT.read_text()
    assert tables.replaced(document, name, tables.markdown(kept)) == document


def test_a_table_rounds_and_prints() -> None:
    columns = [tables.Column("of"), tables.Column("x", 1), tables.Column("n")]
    kept = tables.table(columns, [["a", 1.26, 3], ["b", 10.0, 4]], "Note.")
    assert kept["rows"] == [["a", 1.3, 3], ["b", 10.0, 4]]
    assert tables.markdown(kept) == [
        "Note.", "", "| of | x | n |", "|---|---|---|", "| a | 1.3 | 3 |", "| b | 10.0 | 4 |",
    ]  # fmt: skip
