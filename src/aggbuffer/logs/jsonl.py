"""JSON lines: a file that any tool reads, whole up to the last epoch even if the process is killed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from aggbuffer.callbacks import RunInfo
from aggbuffer.files import checked_path
from aggbuffer.logs.base import Logger, made_folder
from aggbuffer.result import EpochRecord, FitResult

FORMAT = "aggbuffer-events-1"


class JsonLines(Logger):
    """One JSON object a line: ``"event"`` is ``"start"``, ``"epoch"`` or ``"end"``.

    The start holds settings, seed and versions; an epoch all of its :class:`EpochRecord`; the end why the run stopped
    and which epoch was kept. A new run replaces the file. One that goes on from a checkpoint appends to it; epochs
    after the checkpoint are then run, and told, again: of two lines for one epoch the later counts.

    Args:
        path: The file; its folder is made if it is not there.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = checked_path(path)
        self._file: BinaryIO | None = None

    def open(self, info: RunInfo) -> None:
        self._close()
        made_folder(self.path.parent)
        going_on = info.epochs_done > 0 and self.path.exists()
        if going_on:
            _end_last_line(self.path)
        self._file = self.path.open("ab" if going_on else "wb", buffering=0)  # each line reaches the system at once
        self._line("start", {"format": FORMAT, **info.to_dict()})

    def write(self, record: EpochRecord) -> None:
        self._line("epoch", record.to_dict())

    def close(self, result: FitResult) -> None:
        told = result.to_dict()
        self._line("end", {key: told[key] for key in ("stopped", "best_epoch", "best_score", "seconds")})
        self._close()

    def _line(self, event: str, values: dict[str, Any]) -> None:
        assert self._file is not None
        told = {"event": event, "time": datetime.now(UTC).isoformat(timespec="milliseconds"), **values}
        self._file.write(json.dumps(told, allow_nan=False).encode() + b"\n")

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _end_last_line(path: Path) -> None:
    """Cut off a line that a killed process, or a full disk, left unfinished."""
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)
