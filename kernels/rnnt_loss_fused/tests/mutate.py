"""Breaks the kernel on purpose, one fault at a time, and shows which test notices.

Each mutation replaces a piece of text that occurs exactly once in a copy of the sources. Then the
tests of tests/kernels/operator run on the copy until the first one fails. A mutation that no test
notices is an error.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
KERNEL = Path("kernels/rnnt_loss_fused/op_kernel")
COPIED = (
    "asr_ascend",
    "kernels",
    "tests/__init__.py",
    "tests/conftest.py",
    "tests/kernels/__init__.py",
    "tests/support",
    "tests/losses",
    "tests/kernels/operator",
)


@dataclass(frozen=True)
class Mutation:
    name: str
    file: str
    old: str
    new: str


MUTATIONS = (
    Mutation(
        "drop a V barrier",
        "rnnt_loss_vector.h",
        "  AscendC::Add(sum, a, b, count);\n  Barrier();\n",
        "  AscendC::Add(sum, a, b, count);\n",
    ),
    Mutation(
        "drop an MTE2 to V wait",
        "rnnt_loss_row_entries.h",
        "    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(state_arrived_);\n",
        "",
    ),
    Mutation(
        "drop the SyncAll before the lattice",
        "rnnt_loss_launch.h",
        "  AscendC::SyncAll();\n  const bool valid",
        "  const bool valid",
    ),
    Mutation(
        "drop the SyncAll after the lattice",
        "rnnt_loss_launch.h",
        "  AscendC::SyncAll();\n  return valid;",
        "  return valid;",
    ),
    Mutation(
        "read one row too far",
        "rnnt_loss_row_tiles.h",
        "          tile[block.row * pitch_], rows_[block.element],\n"
        "          AscendC::DataCopyExtParams{static_cast<uint16_t>(block.rows), RowBytes(piece),",
        "          tile[block.row * pitch_], rows_[block.element],\n"
        "          AscendC::DataCopyExtParams{static_cast<uint16_t>(block.rows + 1), "
        "RowBytes(piece),",
    ),
    Mutation(
        "forget the tail of V in windows",
        "rnnt_loss_row_tiles.h",
        "    if (next_.column < vocab_) return true;\n",
        "    if (next_.column + tile_columns_ <= vocab_) return true;\n",
    ),
    Mutation(
        "forget the tail of V in a row's sum",
        "rnnt_loss_rows.h",
        "AscendC::ReduceSum(result, rows[row * pitch_], reduce_.Get<float>(), piece.columns);",
        "AscendC::ReduceSum(result, rows[row * pitch_], reduce_.Get<float>(),\n"
        "                       piece.columns > 64 ? piece.columns / 64 * 64 : piece.columns);",
    ),
    Mutation(
        "skip the last core's rows",
        "rnnt_loss_row_tiles.h",
        "    end_ = problem->ShareEnd(problem->tiling.num_rows);\n",
        "    end_ = AscendC::GetBlockIdx() + 1 == problem->tiling.used_cores\n"
        "               ? slot_\n"
        "               : problem->ShareEnd(problem->tiling.num_rows);\n",
    ),
    Mutation(
        "swap blank and label",
        "rnnt_loss_row_entries.h",
        "    PrepareEntry(kAtLabel, kLabelLogit, Values(kSplit), 1.0f + lambda, 1.0f, count);\n"
        "    PrepareEntry(kAtBlank, kBlankLogit, Values(kX), 1.0f, 1.0f + lambda, count);\n",
        "    PrepareEntry(kAtLabel, kBlankLogit, Values(kX), 1.0f + lambda, 1.0f, count);\n"
        "    PrepareEntry(kAtBlank, kLabelLogit, Values(kSplit), 1.0f, 1.0f + lambda, count);\n",
    ),
    Mutation(
        "float pairs become plain float",
        "rnnt_loss_vector.h",
        "  AscendC::Add(error, error, y, count);\n",
        "  AscendC::Duplicate(error, 0.0f, count);\n",
    ),
    Mutation(
        "clamp after scaling",
        "rnnt_loss_gradient.h",
        "    if (problem_->tiling.clamp > 0.0f) {\n"
        "      AscendC::Mins(to, to, problem_->tiling.clamp, count);\n"
        "      Barrier();\n"
        "    }\n"
        "    if (sample_.scale != 1.0f) {\n"
        "      AscendC::Muls(to, to, sample_.scale, count);\n"
        "      Barrier();\n"
        "    }\n",
        "    if (sample_.scale != 1.0f) {\n"
        "      AscendC::Muls(to, to, sample_.scale, count);\n"
        "      Barrier();\n"
        "    }\n"
        "    if (problem_->tiling.clamp > 0.0f) {\n"
        "      AscendC::Mins(to, to, problem_->tiling.clamp, count);\n"
        "      Barrier();\n"
        "    }\n",
    ),
    Mutation(
        "gather off by one",
        "rnnt_loss_lattice.h",
        "static_cast<uint32_t>(lane * sizeof(float)),",
        "static_cast<uint32_t>((lane + 1) * sizeof(float)),",
    ),
    Mutation(
        "forget padding of a short diagonal",
        "rnnt_loss_lattice.h",
        "    SetLane(beta.high[kPad], diagonal.count, kImpossible);\n",
        "",
    ),
    Mutation(
        "put a short diagonal over its neighbour",
        "rnnt_loss_lattice_output.h",
        "{((uint64_t{1} << diagonal.count) - 1) << lane, 0}",
        "{(uint64_t{1} << (diagonal.count + lane)) - 1, 0}",
    ),
    Mutation(
        "let a path cross an empty diagonal of a band",
        "rnnt_loss_lattice.h",
        "    AscendC::Adds(result.high[kPad], result.high[kPad], kImpossible, kFloatsPerBlock);\n",
        "",
    ),
    Mutation(
        "leave a frame of a band too early",
        "../../rnnt_lattice/band_walk.h",
        "limits.Last(next.first_t) + next.first_t < next.diagonal;",
        "limits.Last(next.first_t) + next.first_t <= next.diagonal;",
    ),
    Mutation(
        "walk a band backwards without its new frames",
        "../../rnnt_lattice/band_walk.h",
        "limits.Last(t) + t >= previous.diagonal",
        "limits.Last(t) + t > previous.diagonal",
    ),
    Mutation(
        "forget where a band's rows begin",
        "rnnt_loss_band.h",
        "      bases.SetValue(i, cells_ - first);\n",
        "      bases.SetValue(i, cells_);\n",
    ),
    Mutation(
        "let the frames of a band lie apart",
        "../../rnnt_lattice/band.h",
        " && first <= last_before + 1;",
        ";",
    ),
    Mutation(
        "forget FastEmit in the softmax",
        "rnnt_loss_row_entries.h",
        "    if (lambda > 0.0f) AddLabelWeight(lambda, count);\n",
        "",
    ),
    Mutation(
        "reuse a queue buffer too early",
        "rnnt_loss_gradient.h",
        "      Softmax(out, tile, piece);\n      in_.FreeTensor(tile);\n",
        "      in_.FreeTensor(tile);\n      Softmax(out, tile, piece);\n",
    ),
)


def copy_sources(folder: Path) -> None:
    for name in COPIED:
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        else:
            shutil.copy(source, target)
    shutil.copy(ROOT / "pyproject.toml", folder)


def apply(mutation: Mutation, folder: Path) -> None:
    """Raises ValueError unless the text to replace occurs exactly once."""
    path = folder / KERNEL / mutation.file
    text = path.read_text()
    count = text.count(mutation.old)
    if count != 1:
        raise ValueError(
            f"The text of `{mutation.name}` must occur once in {mutation.file}, but occurs "
            f"{count} times."
        )
    path.write_text(text.replace(mutation.old, mutation.new))


@dataclass(frozen=True)
class Outcome:
    passed: bool
    test: str  # the first that failed
    complaint: str


def run_tests(folder: Path, tests: Sequence[str] = ("tests/kernels/operator",)) -> Outcome:
    command = [sys.executable, "-m", "pytest", *tests, "-x", "-q", "-m", "not slow and not bench"]
    command += ["-p", "no:cacheprovider", "--tb=line", "-W", "ignore"]
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "1000"}
    result = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if result.returncode == 0:
        return Outcome(True, "", "")
    match = re.search(r"^(?:FAILED|ERROR) (\S+?)(?: - (.*))?$", result.stdout, re.MULTILINE)
    if match is None or result.returncode != 1:
        raise RuntimeError(f"pytest broke off:\n{result.stdout}\n{result.stderr}")
    return Outcome(False, match.group(1), (match.group(2) or "").strip())


def try_mutation(mutation: Mutation, tests: Sequence[str] = ("tests/kernels/operator",)) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="mutation-") as name:
        folder = Path(name)
        copy_sources(folder)
        apply(mutation, folder)
        return run_tests(folder, tests)


def table_row(mutation: Mutation, outcome: Outcome) -> str:
    test = outcome.test.removeprefix("tests/kernels/operator/") or "**nothing**"
    complaint = re.sub(r"^[\w.]+(?:Error|Violation): | \[core .*", "", outcome.complaint)
    complaint = complaint.replace("|", "\\|")
    return f"| {mutation.name} | `{mutation.file}` | `{test}` | {complaint} |"


def write_table(lines: list[str]) -> None:
    path = ROOT / "kernels/rnnt_loss_fused/README.md"
    before, rest = path.read_text().split("<!-- mutations -->\n")
    after = rest.split("<!-- end -->")[1]
    path.write_text(f"{before}<!-- mutations -->\n" + "\n".join(lines) + f"\n<!-- end -->{after}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="the mutations whose name contains this")
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    arguments = parser.parse_args()
    table = ["| mutation | file | caught by | what it said |", "|---|---|---|---|"]
    print("\n".join(table), flush=True)
    survivors = []
    for mutation in MUTATIONS:
        if arguments.only not in mutation.name:
            continue
        outcome = try_mutation(mutation)
        table.append(table_row(mutation, outcome))
        print(table[-1], flush=True)
        if outcome.passed:
            survivors.append(mutation.name)
    if arguments.write:
        write_table(table)
    if survivors:
        print(f"No test noticed: {', '.join(survivors)}.", file=sys.stderr)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
