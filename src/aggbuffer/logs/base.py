"""What all loggers share: an error in one of them costs the log, never the fit."""

from __future__ import annotations

import logging
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aggbuffer.callbacks import RunInfo
from aggbuffer.errors import AggBufferError, LogError
from aggbuffer.files import checked_path
from aggbuffer.result import EpochRecord, FitResult

logger = logging.getLogger("aggbuffer")


class Logger(ABC):
    """A callback that writes what it hears; subclasses say where to.

    What cannot be opened is an error before the first epoch. What cannot be written later is told once, in a warning,
    and the run goes on without this logger.
    """

    _broken = False

    @abstractmethod
    def open(self, info: RunInfo) -> None:
        """Begin the log of a run."""

    @abstractmethod
    def write(self, record: EpochRecord) -> None:
        """Write an epoch."""

    @abstractmethod
    def close(self, result: FitResult) -> None:
        """Write what came of it, and let go of files."""

    def on_start(self, info: RunInfo) -> None:
        self._broken = False
        try:
            self.open(info)
        except AggBufferError:
            raise
        except Exception as error:
            raise LogError(
                f"The log of {type(self).__name__} cannot be opened ({_reason(error)}); name another place."
            ) from error

    def __call__(self, record: EpochRecord) -> None:
        self._attempt(lambda: self.write(record))

    def on_end(self, result: FitResult) -> None:
        self._attempt(lambda: self.close(result))

    def _attempt(self, write: Callable[[], None]) -> None:
        if self._broken:
            return
        try:
            write()
        except Exception as error:
            self._broken = True
            logger.warning(
                "%s failed (%s) and logs no more; the fit is not affected.", type(self).__name__, _reason(error)
            )


def metrics(record: EpochRecord) -> dict[str, float]:
    """What there is to plot of an epoch, by names that sort well; what does not apply is left out."""
    told = record.to_dict()
    names = {
        "loss/bias": "bias",
        "loss/robustness": "robust",
        "loss/total": "loss",
        "validation/loss": "val_loss",
        "validation/accuracy": "val_accuracy",
        "validation/score": "score",
    }
    return {name: told[key] for name, key in names.items() if told[key] is not None}


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level: ``{"config": {"lr": 1}}`` as ``{"config.lr": 1}``."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def made_folder(folder: str | Path) -> Path:
    """A folder to log to, made if it is not there.

    Raises:
        LogError: If that cannot be done.
    """
    path = checked_path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LogError(f"The folder {path} cannot be made ({error.strerror or error}); name another one.") from error
    return path


def _reason(error: Exception) -> str:
    return textwrap.shorten(f"{type(error).__name__}: {error}", 120, placeholder=" …")
