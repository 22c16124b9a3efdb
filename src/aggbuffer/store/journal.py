"""What a build has finished, so that the same command goes on after it was killed."""

from __future__ import annotations

import fcntl
import json
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aggbuffer.errors import BufferFileError
from aggbuffer.files import write_bytes

logger = logging.getLogger("aggbuffer")

FORMAT = "aggbuffer-store-journal-1"
_NAME, _LOCK = "journal.json", "lock"


class Journal:
    """Stages of a build and how far each is; every note replaces the file in one step.

    What a note tells must have reached the disk before.
    """

    def __init__(self, folder: Path, identity: dict[str, Any]) -> None:
        """Read the journal of an earlier run on the same inputs, or begin one.

        Args:
            folder: Of the unfinished store.
            identity: What the inputs are; other inputs start anew.
        """
        self.path, self.identity = folder / _NAME, identity
        self.stages: dict[str, dict[str, Any]] = self._read()

    def _read(self) -> dict[str, dict[str, Any]]:
        if not self.path.exists():
            return {}
        content = json.loads(self.path.read_text(encoding="utf-8"))
        if content.get("format") != FORMAT or content.get("identity") != self.identity:
            logger.info("the inputs have changed since this store was begun; building it from the start")
            _empty(self.path.parent)
            return {}
        stages: dict[str, dict[str, Any]] = content["stages"]
        return stages

    def state(self, stage: str) -> dict[str, Any] | None:
        """What was last noted of a stage."""
        return self.stages.get(stage)

    def is_done(self, stage: str) -> bool:
        """Whether a stage has come to its end."""
        return bool(self.stages.get(stage, {}).get("done"))

    def note(self, stage: str, **state: Any) -> None:
        """Write down how far a stage is; ``done=True`` for its end."""
        self.stages[stage] = state
        content = {"format": FORMAT, "identity": self.identity, "stages": self.stages}
        write_bytes(json.dumps(content).encode(), self.path)

    def remove(self) -> None:
        """Leave nothing of the journal in the folder."""
        self.path.unlink(missing_ok=True)
        (self.path.parent / _LOCK).unlink(missing_ok=True)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Make the folder and keep other processes from building in it meanwhile; a killed process leaves no lock."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BufferFileError(f"Another process is building in {folder}; wait for it, or stop it.") from None
        yield


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != _LOCK:
            path.unlink()
