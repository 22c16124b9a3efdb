"""Ctrl-C during a fit."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aggbuffer.callbacks import RunInfo
    from aggbuffer.result import EpochRecord, FitResult

_PATIENCE = 1.0  # seconds that the user is not told to wait


class BetweenEpochs:
    """A callback by which Ctrl-C ends a run after the epoch at hand, whose checkpoint then misses none; twice, at once.

    Attributes:
        epoch: The last one that was finished.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self._pressed = False
        self._before: Any = None
        self._hint: threading.Timer | None = None

    def on_start(self, info: RunInfo) -> None:
        self.epoch = info.epochs_done
        if threading.current_thread() is threading.main_thread():  # no other may handle signals
            self._before = signal.signal(signal.SIGINT, self._press)

    def __call__(self, record: EpochRecord) -> None:
        self.epoch = record.epoch
        if self._pressed:
            raise KeyboardInterrupt

    def on_end(self, result: FitResult) -> None:
        if self._hint is not None:
            self._hint.cancel()
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self._pressed and result.stopped not in ("interrupted", "error"):  # as the run ended by itself
            raise KeyboardInterrupt

    def _press(self, *_: object) -> None:
        if self._pressed:
            raise KeyboardInterrupt
        self._pressed = True
        # Not from here: the signal may have come in the middle of a line.
        self._hint = threading.Timer(_PATIENCE, _tell)
        self._hint.daemon = True
        self._hint.start()


def _tell() -> None:
    print("Stopping after this epoch; Ctrl-C again stops at once.", file=sys.stderr)
