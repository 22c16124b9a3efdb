"""How far a search is, on standard error: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import random
import sys
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from aggbuffer.sweep.records import Progress, TrialRecord
from aggbuffer.text import percent

_SECONDS_BETWEEN_LINES = 10.0

MONITORS = {"val_loss": "validation loss", "val_accuracy": "validation accuracy"}


class Board:
    """Shows the whole search, and this worker's trials.

    Args:
        wanted: True for it in any case, False for nothing, None for a terminal only.
        monitor: What trials are compared by.
    """

    def __init__(self, wanted: bool | None, monitor: str) -> None:
        self._monitor = monitor
        self._live = wanted is not False and sys.stderr.isatty()
        self._lines = bool(wanted) and not self._live
        self._bar: Any = None
        self._open = ExitStack()
        self._last = ""
        self._told_at = time.monotonic()

    def __enter__(self) -> Self:
        if self._live:
            state = random.getstate()
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
            from rich.progress import Progress as Bar

            random.setstate(state)  # rich draws a number when it is first imported
            columns = BarColumn(bar_width=8), MofNCompleteColumn(), TextColumn("{task.fields[told]}")
            bar = Bar(*columns, console=Console(stderr=True, highlight=False), transient=True)
            self._bar = self._open.enter_context(bar)
            self._task = bar.add_task("search", total=None, told="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()
        if self._live and self._last:
            print(self._last, file=sys.stderr, flush=True)

    def show(self, progress: Progress) -> None:
        """The search as a whole."""
        told = describe(progress, self._monitor)
        if self._bar is not None:
            self._bar.update(self._task, total=progress.points, completed=progress.done, told=told)
        line = f"{progress.done} of {progress.points} done; {told}".rstrip("; ")
        due = time.monotonic() - self._told_at >= _SECONDS_BETWEEN_LINES or progress.settled
        if self._lines and due and line != self._last:
            print(line, file=sys.stderr, flush=True)
            self._told_at = time.monotonic()
        self._last = line

    def tell(self, record: TrialRecord) -> None:
        """A trial that this worker has done."""
        line = describe_trial(record, self._monitor)
        if self._bar is not None:
            self._bar.console.print(line, markup=False)
        elif self._lines:
            print(line, file=sys.stderr, flush=True)


def describe(progress: Progress, monitor: str) -> str:
    """What is under way, what went wrong, the best so far, and how long it may take."""
    counts = [("running", progress.running), ("pruned", progress.pruned), ("failed", progress.failed)]
    parts = [", ".join(f"{count} {name}" for name, count in [*counts, ("lost", progress.lost)] if count)]
    if progress.best is not None and progress.best.score is not None:
        parts.append(f"best {MONITORS[monitor]} {score_text(progress.best.score, monitor)}")
    if progress.seconds_left and not progress.settled:
        parts.append(f"{time_text(progress.seconds_left)} left")
    return "; ".join(filter(None, parts))


def describe_trial(record: TrialRecord, monitor: str) -> str:
    """One trial in a line."""
    settings = " ".join(f"{name}={value_text(value)}" for name, value in record.settings.items())
    told = f"trial {record.number}: {settings}"
    if record.score is None or record.state != "complete":
        return f"{told}, {record.state}" + (f": {record.reason}" if record.reason else "")
    return f"{told}, {MONITORS[monitor]} {score_text(record.score, monitor)} after {record.epochs} epochs"


def score_text(score: float, monitor: str) -> str:
    """A score as what it is; accuracies are searched by their negative."""
    return percent(-score, 2) if monitor == "val_accuracy" else f"{score:.4f}"


def value_text(value: object) -> str:
    """A setting's value in a few characters."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def time_text(seconds: float) -> str:
    """``100`` as ``2 min``."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
