"""What is told of a run while it goes: its rate, an upper bound of its time, and when patience ends."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
from rich.console import Console

from aggbuffer.callbacks import RunInfo
from aggbuffer.config import BufferConfig, FitConfig
from aggbuffer.progress import Display, Live, describe
from aggbuffer.result import EpochRecord
from aggbuffer.text import duration

CONFIG = FitConfig(max_epochs=400, patience=30)


def record(epoch: int, score: float) -> EpochRecord:
    return EpochRecord(epoch, 0.1, 0.2, 0.2, score, 0.875, score)


def info(*history: EpochRecord) -> RunInfo:
    return RunInfo(CONFIG, BufferConfig(), "val_loss", list(history), "GCN", 10, 20, 30, 4)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that ``time.monotonic`` tells."""
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_the_time_left_is_bounded_by_the_most_epochs_at_the_present_rate(clock: list[float]) -> None:
    display = Display(CONFIG)
    display.on_start(info())
    assert display.pace == ""  # nothing is known yet
    for epoch in range(1, 101):
        clock[0] += 0.25
        display(record(epoch, 1.0))
    assert display.pace == "4.0 epochs/s, at most 1:15 left"
    for epoch in range(101, 341):
        clock[0] += 0.05
        display(record(epoch, 1.0))
    assert display.rate == pytest.approx(20, rel=0.1)  # it follows


def test_a_run_that_goes_on_counts_its_rate_from_where_it_goes_on(clock: list[float]) -> None:
    display = Display(CONFIG)
    display.on_start(info(*(record(epoch, 2.0 if epoch == 150 else 3.0) for epoch in range(1, 201))))
    assert display.patience == "best so far: epoch 150; patience ends at epoch 180"
    clock[0] += 1
    display(record(201, 2.5))
    assert display.pace == "1.0 epochs/s, at most 3:19 left"
    display(record(202, 1.5))
    assert display.patience == "best so far: epoch 202; patience ends at epoch 232"


@pytest.mark.parametrize("columns", [80, 60, 40])
def test_the_live_display_has_three_lines_that_fit(columns: int, clock: list[float]) -> None:
    console = Console(file=io.StringIO(), width=columns, force_terminal=True)
    display = Live(replace(CONFIG, max_epochs=100_000), console)
    Display.on_start(display, info())
    clock[0] += 3600
    display(record(77_777, 12.3456))
    with console.capture() as shown:
        console.print(display._render())
    lines = Console(file=io.StringIO()).render_str(shown.get()).plain.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("epoch 77777/100000")
    assert all(len(line.rstrip()) <= columns for line in lines)
    if columns >= 60:
        assert "at most 17:09 left" in lines[0]
        assert "bias 0.1000 robust 0.2000 val 12.3456 acc 87.50 %" in lines[1]
        assert len(lines[2].rstrip()) <= columns - 2  # room for the ^C that a terminal shows behind it


def test_one_epoch_in_words() -> None:
    assert describe(record(1, 0.5), "val_loss") == "bias 0.1000 robust 0.2000 val 0.5000 acc 87.50 %"
    assert describe(replace(record(1, 0.5), val_accuracy=math.nan), "val_loss").endswith("val 0.5000")
    assert describe(record(1, 0.5), "rc_loss").endswith("held-out 0.5000")
    assert describe(replace(record(1, 0.5), bias=-1e-9), "val_loss").startswith("bias 0.0000 ")


def test_durations() -> None:
    assert [duration(s) for s in (0, 75, 3700, 100_000, 1_000_000)] == [
        "0:00",
        "1:15",
        "1:01:40",
        "27:46:40",
        "12 days",
    ]
