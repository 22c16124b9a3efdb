"""What a person at a terminal sees: a pseudo-terminal with its columns, its Ctrl-C and its escape codes."""

from __future__ import annotations

import fcntl
import os
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_inputs import Files, write_files

ENDLESS = ["--patience", str(10**9), "--max-epochs", str(10**9)]
STOPPED = r"Stopped after epoch (\d+); \S+ was not written\."
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return write_files(tmp_path)


def clean_environment() -> dict[str, str]:
    """Without what would decide about size and colour; pytest itself lets readline set the first two."""
    return {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")}


class Terminal:
    """A command at a terminal of its own."""

    def __init__(self, folder: Path, args: list[str], columns: int, env: dict[str, str]) -> None:
        self.master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "aggbuffer", *args],
            cwd=folder,
            env={**clean_environment(), "TERM": "xterm-256color", **env},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is a signal to it
        )
        os.close(slave)
        self.shown = ""

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read until ``pattern`` is there; with an empty one, until the command has ended."""
        until = time.monotonic() + 120
        while not (found := re.search(pattern or "(?!)", self.shown)):
            assert time.monotonic() < until, self.shown
            if not select.select([self.master], [], [], 1)[0]:
                continue
            try:
                self.shown += os.read(self.master, 65_536).decode()
            except OSError:  # how Linux tells the end of a terminal
                assert not pattern, self.shown
                return re.match("", "")  # type: ignore[return-value]
        return found

    def press_ctrl_c(self) -> None:
        os.write(self.master, b"\x03")

    def end(self) -> tuple[int, str]:
        """The exit code, and all that was shown, in one line and without escape codes."""
        self.wait_for("")
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.shown)
        return self.process.wait(timeout=60), " ".join(plain.split())


@contextmanager
def terminal(files: Files, *args: str, columns: int = 80, **env: str) -> Iterator[Terminal]:
    made = Terminal(files.folder, list(args), columns, env)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()
        os.close(made.master)


def test_progress_is_live_and_ctrl_c_with_a_checkpoint_loses_no_epoch(files: Files) -> None:
    command = ["fit", *files.inputs, "--out", "x.safetensors", "--checkpoint", "c", *ENDLESS]
    with terminal(files, *command, NO_COLOR="1") as screen:
        screen.wait_for(r"epochs/s, at most [\d:]+( days)? left")
        screen.wait_for(r"bias \d\.\d{4} robust \d\.\d{4} val \d\.\d{4} acc \d+\.\d\d %")
        screen.wait_for(r"best so far: epoch \d+; patience ends at epoch \d+")
        screen.press_ctrl_c()
        code, told = screen.end()
    assert code == 130
    assert "Traceback" not in told
    stopped = re.search(STOPPED + r" c keeps the state after epoch (\d+)\.", told)
    assert stopped, told
    assert stopped[1] == stopped[2]
    assert told.endswith("Run the same command again to go on from there. The log is in x.run/events.jsonl.")
    assert screen.shown.rindex(SHOW) > screen.shown.rindex(HIDE)
    assert not re.search(r"\x1b\[[0-9;]*3\d", screen.shown)  # no colour was set
    with terminal(files, *command) as screen:
        screen.wait_for(rf"going on after epoch {stopped[1]} from c")
        screen.wait_for(r"epochs/s, at most")
        screen.press_ctrl_c()
        code, told = screen.end()
    assert code == 130
    again = re.search(STOPPED, told)
    assert again, told
    assert int(again[1]) > int(stopped[1])
    assert len((files.folder / "x.run" / "events.jsonl").read_text().splitlines()) == int(again[1]) + 4


def test_a_dumb_terminal_gets_lines_and_no_escape_codes(files: Files) -> None:
    with terminal(files, "fit", *files.inputs, "--out", "x.safetensors", *ENDLESS, TERM="dumb") as screen:
        screen.wait_for(r"epoch 1/1000000000: bias .* left")
        screen.press_ctrl_c()
        code, told = screen.end()
    assert code == 130
    assert "\x1b" not in screen.shown
    assert re.search(STOPPED + " Of what was learned nothing was kept. With --checkpoint PATH a run can go on.", told)


def test_ctrl_c_while_scoring(files: Files) -> None:
    with terminal(files, "evaluate", *files.inputs, "--repeats", "1000000") as screen:
        screen.wait_for("Scoring the model")
        screen.press_ctrl_c()
        code, told = screen.end()
    assert code == 130
    assert told.endswith("Stopped; nothing was written.")
    assert screen.shown.rindex(SHOW) > screen.shown.rindex(HIDE)


@pytest.mark.slow
def test_ctrl_c_in_the_demo_and_the_diagnosis(files: Files) -> None:
    with terminal(files, "demo", "--out", "d") as screen:
        screen.wait_for("epochs/s, at most")
        screen.press_ctrl_c()
        code, told = screen.end()
    assert code == 130
    assert told.endswith("Stopped; what was finished is in d. Run the same command to start anew.")
    with terminal(files, "diagnose", *files.inputs, "--repeats", "1000000") as screen:
        screen.wait_for("Removing edges")
        screen.press_ctrl_c()
        code, told = screen.end()
    assert code == 130
    assert told.endswith("Stopped; nothing was written.")


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux, which shows what a screen looks like")
def test_at_60_columns_no_line_is_broken_and_nothing_is_left_behind(files: Files) -> None:
    def tmux(*args: str) -> str:
        command = ["tmux", "-S", str(files.folder / "tmux"), "-f", "/dev/null", *args]
        return subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=60).stdout

    def screen(pattern: str) -> list[str]:
        until = time.monotonic() + 120
        while not re.search(pattern, shown := tmux("capture-pane", "-p")):
            assert time.monotonic() < until, shown
            time.sleep(0.1)
        return shown.replace("^C", "").strip().splitlines()

    fit = [sys.executable, "-m", "aggbuffer", "fit", *files.inputs, "--out", "x.safetensors", *ENDLESS]
    try:
        size = ["-x", "60", "-y", "20", "-c", str(files.folder)]
        tmux("new-session", "-d", *size, "sh", "-c", '"$@"; sleep 600', "sh", *fit)
        lines = screen("patience ends")
        assert [line.split()[0] for line in lines] == ["Trying", "Self-loops", "epoch", "bias", "best"], lines
        assert lines[2].endswith("left")
        tmux("send-keys", "C-c")
        lines = screen("go on")
        assert lines[2] == ""
        assert lines[3].startswith("Stopped after epoch")
    finally:
        tmux("kill-server")
