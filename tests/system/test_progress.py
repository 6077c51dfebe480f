import os
import pty
import subprocess
import sys

from asr_ascend.system import progress


def test_a_log_gets_a_line_now_and_then(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.progress_bar("Inspecting train", 9000, completed=1000) as advance:
        for seconds, count in ((10.0, 50), (31.0, 50), (40.0, 100), (62.0, 3800), (9000.0, 1000)):
            now[0] = seconds
            advance(count)
    assert capsys.readouterr().err == (
        "Inspecting train: 1100 of 9000, about 41 min left\n"  # 100 in 31 s, 7900 to go
        "Inspecting train: 5000 of 9000, about 62 s left\n"  # 4000 in 62 s; the earlier 1000 aside
        "Inspecting train: 6000 of 9000, about 1.5 h left\n"
    )


def test_quick_work_and_work_that_does_not_begin_leave_a_log_alone(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.progress_bar("Inspecting train", 4) as advance:
        now[0] = 100.0
        advance(0)
        now[0] = 0.0
        advance(4)
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar_that_goes_away():
    program = (
        "from asr_ascend.system.progress import progress_bar\n"
        "with progress_bar('Inspecting train', 7, completed=2) as advance:\n"
        "    advance(3)\n"
    )
    terminal, stderr = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    subprocess.run(
        [sys.executable, "-c", program], stderr=stderr, env=environment, check=True, timeout=300
    )
    os.close(stderr)
    shown = os.read(terminal, 1 << 16).decode()
    os.close(terminal)
    assert "Inspecting train" in shown
    assert "5/7" in shown
    assert "\x1b[2K" in shown.split("5/7")[-1]  # the line is erased in the end
