"""How commands end: exit status, the one spelling of errors, streams that take no more."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from asr_ascend.system.command import CommandParser, run_command
from asr_ascend.system.streams import escaped, safe_streams


class Problem(ValueError):
    pass


def raising(error):
    def task():
        raise error

    return task


@pytest.mark.parametrize("status", [0, 1])
def test_the_status_of_the_work_is_handed_on(capsys, status):
    assert run_command(lambda: status) == status
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (Problem("`x` must be 1."), 2, "Error: `x` must be 1.\n"),
        (Problem("one.\ntwo."), 2, "Error: one.\nError: two.\n"),
        (Problem("It has:\n  one\n  two"), 2, "Error: It has:\n  one\n  two\n"),
        (
            OSError(28, "No space left on device", "a/b"),
            2,
            "Error: a/b: No space left on device.\n",
        ),
        (OSError(28, "It is full"), 2, "Error: It is full.\n"),
        (OSError("odd"), 2, "Error: odd.\n"),
        (KeyboardInterrupt(), 130, "Stopped.\n"),
        (KeyboardInterrupt("Stopped at step 3."), 130, "Stopped at step 3.\n"),
    ],
)
def test_errors_end_in_a_sentence(capsys, error, status, told):
    assert run_command(raising(error), (Problem,), interrupted="Stopped.") == status
    assert capsys.readouterr() == ("", told)


def test_an_error_that_nobody_foresaw_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        run_command(raising(ZeroDivisionError()), (Problem,))


def test_a_wrong_command_line_is_told_as_other_bad_input(capsys):
    parser = CommandParser(prog="python -m it")
    parser.add_argument("--out", required=True)
    with pytest.raises(SystemExit) as caught:
        run_command(lambda: len(vars(parser.parse_args([]))))
    assert caught.value.code == 2
    told = "Error: the following arguments are required: --out. See python -m it --help.\n"
    assert capsys.readouterr() == ("", told)


PROGRAM = """
import sys
from pathlib import Path
from asr_ascend.system.command import run_command

def task():
    print("first", "\\u4e2d", "\\udcff", "\\u00e9", flush=True)
    print("progress", file=sys.stderr, flush=True)
    print("second" * 100_000)
    Path("done").write_text("")
    return 0

sys.exit(run_command(task, results_on_stdout=sys.argv[1] == "results"))
"""


def shell(folder: Path, line: str, what: str, **environment: str) -> tuple[int, str, bool]:
    """Runs PROGRAM as a line of the shell has it; status, stderr, and whether the work was done."""
    done = subprocess.run(
        ["bash", "-c", line.replace("PROGRAM", '"$COMMAND_PYTHON" -c "$COMMAND_TEXT" ' + what)],
        cwd=folder,
        env={
            **os.environ,
            "COMMAND_PYTHON": sys.executable,
            "COMMAND_TEXT": PROGRAM,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            **environment,
        },
        capture_output=True,
        timeout=500,
    )
    return done.returncode, done.stderr.decode(), (folder / "done").is_file()


FULL = "Error: Standard output takes no more: No space left on device.\n"
CLOSED = "Error: Standard output must be open, as the results go there.\n"


@pytest.mark.parametrize(
    ("line", "what", "expected"),
    [
        ("set -o pipefail; PROGRAM | true", "files", (0, "progress\n", True)),
        ("set -o pipefail; PROGRAM | true", "results", (141, "", False)),
        ("PROGRAM >/dev/full", "files", (2, "progress\n" + FULL, True)),
        ("PROGRAM >/dev/full", "results", (2, FULL, False)),
        ("PROGRAM >&-", "files", (0, "progress\n", True)),
        ("PROGRAM >&-", "results", (2, CLOSED, False)),
        ("PROGRAM 2>/dev/full", "results", (0, "", True)),
        ("PROGRAM 2>&-", "results", (0, "", True)),
        ("PROGRAM <&- >&- 2>&-", "files", (0, "", True)),
        ("set -o pipefail; PROGRAM 2> >(true); sleep 0", "results", (0, "", True)),
    ],
)
def test_a_stream_that_takes_no_more(tmp_path, line, what, expected):
    if "/dev/full" in line and not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    status, told, done = shell(tmp_path, line, what)
    if "| true" in line:  # whether the first line was written before the reader went is chance
        told = told if what == "files" else ""
    assert (status, told, done) == expected


@pytest.mark.parametrize(
    ("encoding", "written"),
    [
        ("utf-8", b"first \xe4\xb8\xad \\udcff \xc3\xa9"),
        ("latin-1", b"first \\u4e2d \\udcff \xe9"),
        ("gbk", b"first \xd6\xd0 \\udcff \xa8\xa6"),
        ("ascii", b"first \\u4e2d \\udcff \\xe9"),
    ],
)
def test_what_an_encoding_lacks_is_escaped(monkeypatch, encoding, written):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))

    def task():
        print("first", "\u4e2d", "\udcff", "\u00e9")
        return 0

    assert run_command(task) == 0
    assert raw.getvalue() == written + b"\n"


def test_streams_are_themselves_again_afterwards():
    before = sys.stdout, sys.stderr
    with safe_streams():
        assert sys.stdout is not before[0]
    assert (sys.stdout, sys.stderr) == before


def test_only_what_utf8_cannot_hold_is_escaped():
    assert escaped("中 \udcff é 😀") == "中 \\udcff é 😀"
