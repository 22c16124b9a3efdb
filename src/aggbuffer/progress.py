"""Progress of a run on the terminal: a live bar there, a plain line now and then elsewhere."""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aggbuffer.config import FitConfig

if TYPE_CHECKING:
    from rich.progress import Progress

    from aggbuffer.result import EpochRecord

_SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def show_progress(wanted: bool | None, config: FitConfig, monitor: str) -> Iterator[Callable[[EpochRecord], None]]:
    """A callback that shows each epoch on standard error.

    Args:
        wanted: True for progress in any case, False for none, None for a terminal only.
        config: For the number of epochs.
        monitor: Name of what the run is stopped on.
    """
    terminal = sys.stderr.isatty()
    if wanted is False or (wanted is None and not terminal):
        yield lambda record: None
    elif terminal:
        with _bar() as bar:
            task = bar.add_task("fitting", total=config.max_epochs, told="")
            yield lambda record: bar.update(task, completed=record.epoch, told=describe(record, monitor))
    else:
        yield _lines(monitor)


def describe(record: EpochRecord, monitor: str) -> str:
    """One epoch in at most 60 columns."""
    if monitor == "rc_loss":
        validation = f"held-out {record.score:.4f}"
    else:
        accuracy = "" if math.isnan(record.val_accuracy) else f" acc {100 * record.val_accuracy:.2f} %"
        validation = f"val {record.val_loss:.4f}{accuracy}"
    return f"bias {record.bias:.4f} robust {record.robust:.4f} {validation}"


def _bar() -> Progress:
    state = random.getstate()
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    random.setstate(state)  # rich draws a number when it is first imported
    return Progress(
        BarColumn(bar_width=8),
        MofNCompleteColumn(),
        TextColumn("{task.fields[told]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )


def _lines(monitor: str) -> Callable[[EpochRecord], None]:
    last = time.monotonic()

    def line(record: EpochRecord) -> None:
        nonlocal last
        if record.epoch == 1 or time.monotonic() - last > _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            print(f"epoch {record.epoch}: {describe(record, monitor)}", file=sys.stderr, flush=True)

    return line
