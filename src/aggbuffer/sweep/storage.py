"""Where a search keeps its trials: a journal file for one machine, PostgreSQL for many."""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from aggbuffer.errors import ConfigError, SearchError

if TYPE_CHECKING:
    from optuna import Study
    from optuna.storages import BaseStorage

JOURNAL = "search.journal"

_POSTGRES = ("postgresql", "postgres", "postgresql+psycopg", "postgresql+psycopg2")


class Storage(Protocol):
    """What a search needs of a storage.

    Attributes:
        optuna: The same to Optuna.
        kind: What it is, in a word or two.
        told: Where it is, without any password.
        worker: This worker's name in it.
    """

    optuna: BaseStorage
    kind: str
    told: str
    worker: str

    def exclusive(self) -> AbstractContextManager[None]:
        """Inside, no other worker of the same study is; a worker that dies inside is out."""
        ...

    def working_on(self, trial_id: int) -> AbstractContextManager[None]:
        """Inside, the others can tell that this worker is alive and on this trial."""
        ...

    def fail_lost(self, study: Study) -> None:
        """Fail the trials whose workers are gone; to be called inside :meth:`exclusive`."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


def open_storage(where: str | Path | None, out: Path, name: str, lost_after: float) -> Storage:
    """Open, and if need be make, the storage of a study.

    Args:
        where: A ``postgresql://`` address, the path of a journal file, or None for a journal file in ``out``.
        out: The folder of the results.
        name: Of the study.
        lost_after: Seconds without a sign of life after which a worker counts as lost, in PostgreSQL.

    Raises:
        ConfigError: For an address of another kind.
        SearchError: If the storage cannot be reached or used.
    """
    scheme, is_address, rest = str(where or "").partition("://")
    if is_address and scheme in _POSTGRES:
        from aggbuffer.sweep.postgres import Postgres

        return Postgres(f"postgresql+psycopg://{rest}", name, lost_after)
    if is_address and scheme == "sqlite":
        raise ConfigError(
            "SQLite cannot be shared by several workers; leave --storage out for a journal file, or name a path or a "
            "postgresql:// address."
        )
    if is_address:
        raise ConfigError(f"The storage is a {scheme}:// address; expected postgresql:// or the path of a file.")
    from aggbuffer.sweep.journal import JournalFile

    path = Path(where) if where else out / JOURNAL
    try:
        return JournalFile(path)
    except OSError as error:
        raise SearchError(f"The storage {path} cannot be used ({error.strerror or error}); name another.") from error


def told_place(where: str | Path | None, out: Path) -> str:
    """Where a storage is, for people: an address without its password."""
    scheme, is_address, rest = str(where or "").partition("://")
    if not is_address:
        return str(where or out / JOURNAL)
    plain, _, query = rest.partition("?")
    if "@" in query:  # where the password ends cannot be told
        return f"{scheme}://…"
    account, at, place = plain.rpartition("@")
    return f"{scheme}://{account.partition(':')[0]}{at}{place}"


def worker_name() -> str:
    """A name for this worker that no other has, and that tells a reader where it ran."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


@contextmanager
def optuna_through_our_log() -> Iterator[None]:
    """Optuna's warnings go where this library's go, and its other messages nowhere."""
    theirs = logging.getLogger("optuna")
    before = theirs.handlers, theirs.level, theirs.propagate
    theirs.handlers, theirs.propagate = [_Forward()], False
    theirs.setLevel(logging.WARNING)
    try:
        yield
    finally:
        theirs.handlers, level, theirs.propagate = before
        theirs.setLevel(level)


class _Forward(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger("aggbuffer").log(record.levelno, "optuna: %s", record.getMessage())
