"""Progress of a run on the terminal: a live display there, a plain line now and then elsewhere."""

from __future__ import annotations

import math
import random
import sys
import time
from typing import TYPE_CHECKING, Any

from aggbuffer.config import FitConfig
from aggbuffer.text import duration

if TYPE_CHECKING:
    from rich.console import Console

    from aggbuffer.callbacks import RunInfo
    from aggbuffer.result import EpochRecord, FitResult

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_OF_MEMORY = 5.0  # the rate follows what the machine did in about this time


def progress_display(wanted: bool | None, config: FitConfig) -> Display | None:
    """What shows a run on standard error, as a callback of it.

    Args:
        wanted: True for progress in any case, False for none, None for a terminal only.
        config: For the number of epochs.
    """
    terminal = sys.stderr.isatty()
    if wanted is False or (wanted is None and not terminal):
        return None
    console = _console() if terminal else None
    # A dumb terminal cannot take back what it has shown.
    return Live(config, console) if console is not None and console.is_interactive else Lines(config)


class Display:
    """Follows a run: its rate, the time that it can still take, and its best epoch."""

    def __init__(self, config: FitConfig) -> None:
        self.config = config
        self.monitor: str = config.monitor
        self.record: EpochRecord | None = None
        self.epoch = self.best = 0
        self.best_score = math.inf
        self.rate = math.nan
        self._counted_at = self._counted_epoch = 0.0

    def on_start(self, info: RunInfo) -> None:
        self.monitor = info.monitor
        for record in info.history:
            self._note(record)
        self._counted_at, self._counted_epoch = time.monotonic(), info.epochs_done

    def __call__(self, record: EpochRecord) -> None:
        self._note(record)
        elapsed = time.monotonic() - self._counted_at
        if elapsed > 0:
            self.rate = (record.epoch - self._counted_epoch) / elapsed
        if elapsed > _SECONDS_OF_MEMORY:  # forget half of it
            self._counted_at += elapsed / 2
            self._counted_epoch += (record.epoch - self._counted_epoch) / 2

    def on_end(self, result: FitResult) -> None:
        """Nothing is left to be shown."""

    def _note(self, record: EpochRecord) -> None:
        self.record, self.epoch = record, record.epoch
        if record.score < self.best_score:
            self.best, self.best_score = record.epoch, record.score

    @property
    def pace(self) -> str:
        """Epochs a second, and the time until ``max_epochs``: an upper bound, as runs mostly stop before."""
        if not self.rate > 0:
            return ""
        rate = f"{self.rate:.1f} epochs/s" if self.rate < 10 else f"{self.rate:.0f} epochs/s"
        return f"{rate}, at most {duration((self.config.max_epochs - self.epoch) / self.rate)} left"

    @property
    def patience(self) -> str:
        """The best epoch, and when the run ends unless a better one comes; short, as a terminal echoes ^C behind it."""
        return f"best so far: epoch {self.best}; patience ends at epoch {self.best + self.config.patience}"


class Lines(Display):
    """A plain line for the first epoch, and then every ten seconds."""

    _told_at = 0.0

    def __call__(self, record: EpochRecord) -> None:
        super().__call__(record)
        now = time.monotonic()
        if self._told_at == 0 or now - self._told_at > _SECONDS_BETWEEN_LINES:
            self._told_at = now
            pace = f", {self.pace}" if self.pace else ""
            told = f"epoch {record.epoch}/{self.config.max_epochs}: {describe(record, self.monitor)}{pace}"
            print(told, file=sys.stderr, flush=True)


class Live(Display):
    """Three lines that are rewritten in place and vanish at the end."""

    def __init__(self, config: FitConfig, console: Console) -> None:
        super().__init__(config)
        self.console = console
        self._live: Any = None

    def on_start(self, info: RunInfo) -> None:
        super().on_start(info)
        from rich.live import Live as RichLive

        self._live = RichLive(
            get_renderable=self._render,
            console=self.console,
            transient=True,
            refresh_per_second=8,
            redirect_stdout=False,
        )
        self._live.start()

    def on_end(self, result: FitResult) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _render(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        lines = [self._first_line()]
        if self.record is not None:
            lines += [describe(self.record, self.monitor), self.patience]
        return Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in lines))

    def _first_line(self) -> str:
        """How far, at what pace, and a bar where there is room for one; drawn so that it needs no colour."""
        counted = f"epoch {self.epoch}/{self.config.max_epochs}"
        room = min(self.console.width - len(counted) - len(self.pace) - 3, 20)
        done = round(room * self.epoch / max(self.config.max_epochs, 1))
        bar = ["━" * done + "─" * (room - done)] if room > 3 else []
        return " ".join([counted, *bar, self.pace])


def describe(record: EpochRecord, monitor: str) -> str:
    """One epoch in at most 60 columns."""
    if monitor == "rc_loss":
        validation = f"held-out {record.score:.4f}"
    else:
        accuracy = "" if math.isnan(record.val_accuracy) else f" acc {100 * record.val_accuracy:.2f} %"
        validation = f"val {record.val_loss:.4f}{accuracy}"
    return f"bias {record.bias:z.4f} robust {record.robust:z.4f} {validation}"  # rounding may fall below zero


def _console() -> Console:
    state = random.getstate()
    from rich.console import Console

    random.setstate(state)  # rich draws a number when it is first imported
    return Console(stderr=True, highlight=False)
