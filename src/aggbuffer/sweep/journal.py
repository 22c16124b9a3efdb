"""A search on one machine: a journal file, with a lock file and one held file for each worker beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import optuna
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from aggbuffer.errors import SearchError
from aggbuffer.sweep.locks import hold, is_held, locked
from aggbuffer.sweep.records import WORKER
from aggbuffer.sweep.storage import worker_name

_START = b'{"op_code":'  # of every line of a journal


class JournalFile:
    """A journal file. A worker is alive as long as the system says that its process holds its file."""

    kind = "journal file"

    def __init__(self, path: Path) -> None:
        if path.is_dir():
            raise SearchError(f"The storage {path} is a folder; name a file in it.")
        _refuse_other_files(path)
        self.told, self.worker = str(path), worker_name()
        self._lock = path.with_name(f"{path.name}.lock")
        self._workers = path.with_name(f"{path.name}.workers")
        with locked(self._lock):
            self._workers.mkdir(exist_ok=True)
            self._held = hold(self._workers / self.worker)
            try:
                self.optuna: optuna.storages.BaseStorage = optuna.storages.JournalStorage(_Journal(path))
            except Exception as error:  # Optuna checks little of what it reads
                self._leave()
                raise SearchError(f"The storage {path} is damaged ({type(error).__name__}); name another.") from error

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with locked(self._lock):
            yield

    @contextmanager
    def working_on(self, trial_id: int) -> Iterator[None]:
        if WORKER not in self.optuna.get_trial(trial_id).user_attrs:
            self.optuna.set_trial_user_attr(trial_id, WORKER, self.worker)
        yield

    def fail_lost(self, study: optuna.Study) -> None:
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            worker = trial.user_attrs.get(WORKER)
            if worker is None or not is_held(self._workers / worker):
                study.tell(trial.number, state=TrialState.FAIL)
                if worker is not None:
                    (self._workers / worker).unlink(missing_ok=True)

    def close(self) -> None:
        with locked(self._lock):
            self._leave()

    def _leave(self) -> None:
        (self._workers / self.worker).unlink(missing_ok=True)
        self._held.close()
        with suppress(OSError):  # others are at work
            self._workers.rmdir()


class _Journal(JournalFileBackend):
    """Optuna's journal file under a lock that dies with its holder.

    Optuna's own lock is a link that stays when its holder is killed, and holds up everybody else for half a minute.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__(str(path))

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        with locked(self._path):
            self._forget_half_a_line()
            with self._path.open("ab") as file:
                file.write(b"".join(_line(log) for log in logs))
                file.flush()
                os.fsync(file.fileno())

    def _forget_half_a_line(self) -> None:
        """What a worker left that died, or ran out of disk, while it wrote."""
        with self._path.open("rb+") as file:
            end = file.seek(0, os.SEEK_END)
            if not end:
                return
            file.seek(end - 1)
            if file.read(1) != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)


def _refuse_other_files(path: Path) -> None:
    """Before anything is written to it or beside it."""
    try:
        with path.open("rb") as file:
            found = file.read(len(_START))
    except FileNotFoundError:
        return
    if found != _START[: len(found)]:
        raise SearchError(f"The storage {path} is no journal of a search; name another file.")


def _line(log: dict[str, Any]) -> bytes:
    return json.dumps(log, separators=(",", ":")).encode() + b"\n"
