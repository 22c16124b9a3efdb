"""A search on many machines: a PostgreSQL database, whose clock and locks all workers share."""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import optuna
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.trial import TrialState

from aggbuffer.errors import ConfigError, MissingPackageError, SearchError
from aggbuffer.sweep.records import WORKER
from aggbuffer.sweep.storage import told_place, worker_name

try:
    import psycopg  # noqa: F401
    from sqlalchemy import URL, create_engine, make_url, text
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError
    from sqlalchemy.pool import NullPool
except ImportError as error:
    raise MissingPackageError(
        "A search in PostgreSQL needs its driver, which is not installed; run pip install 'aggbuffer[sweep,postgres]'."
    ) from error

logger = logging.getLogger("aggbuffer")

_CONNECT_SECONDS = "10"
_SCHEMA = "schema"


class Postgres:
    """A PostgreSQL database. A worker is alive as long as it writes signs of life, timed by the database's clock."""

    kind = "PostgreSQL"

    def __init__(self, address: str, name: str, lost_after: float) -> None:
        url = _parsed(address)
        self.told, self.worker = told_place(address, Path()), worker_name()
        self._name = name
        self._interval = max(1, int(lost_after) // 4)
        # Connections for locks are made when needed: none is kept idle for hours.
        self._locks = create_engine(url, poolclass=NullPool, connect_args=_connect_args(url))
        try:
            # Whoever comes first makes the tables; made by several at once, they fail.
            with self._locked(_SCHEMA), warnings.catch_warnings():
                warnings.simplefilter("ignore", ExperimentalWarning)
                self._storage = optuna.storages.RDBStorage(
                    url.render_as_string(hide_password=False).replace("{", "{{").replace("}", "}}"),
                    engine_kwargs={"pool_pre_ping": True, "connect_args": _connect_args(url)},
                    heartbeat_interval=self._interval,
                    grace_period=max(2, int(lost_after)),
                )
        except (SQLAlchemyError, StorageInternalError) as error:
            raise SearchError(f"The storage {self.told} cannot be used: {_reason(error, url)}.") from None
        except RuntimeError as error:  # tables of another Optuna
            raise SearchError(f"The storage {self.told} was made by another version of Optuna: {error}") from None
        self.optuna: optuna.storages.BaseStorage = self._storage

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with self._locked(self._name):
            yield

    @contextmanager
    def working_on(self, trial_id: int) -> Iterator[None]:
        self._storage.record_heartbeat(trial_id)
        self._storage.set_trial_user_attr(trial_id, WORKER, self.worker)
        done = Event()
        thread = Thread(target=self._keep_beating, args=(trial_id, done), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def fail_lost(self, study: optuna.Study) -> None:
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if WORKER not in trial.user_attrs:  # its worker died between making it and its first sign of life
                study.tell(trial.number, state=TrialState.FAIL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            optuna.storages.fail_stale_trials(study)

    def close(self) -> None:
        self._storage.remove_session()
        self._storage.engine.dispose()
        self._locks.dispose()

    def _keep_beating(self, trial_id: int, done: Event) -> None:
        while not done.wait(self._interval):
            try:
                self._storage.record_heartbeat(trial_id)
            except (SQLAlchemyError, StorageInternalError) as error:  # it may be back in time
                logger.warning("No sign of life could be written to %s (%s).", self.told, type(error).__name__)
        self._storage.remove_session()

    @contextmanager
    def _locked(self, what: str) -> Iterator[None]:
        """A lock of the database that ends with its transaction, and so with its holder.

        A holder that is silent for a minute, as a machine without power is, loses it too.
        """
        key = int.from_bytes(hashlib.sha256(f"aggbuffer sweep {what}".encode()).digest()[:8], signed=True)
        with self._locks.begin() as connection:
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = '60s'"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})
            yield


def _connect_args(url: URL) -> dict[str, str]:
    return {} if "connect_timeout" in url.query else {"connect_timeout": _CONNECT_SECONDS}


def _parsed(address: str) -> URL:
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        # The address may hold a password, so neither it nor what is said about it is repeated.
        raise ConfigError("The storage is no valid address; expected postgresql://user@host:port/database.") from None
    if not url.database:
        raise ConfigError("The storage names no database; expected postgresql://user@host:port/database.")
    return url


def _reason(error: Exception, url: URL) -> str:
    """The first line of what went wrong, without the password."""
    cause = getattr(error, "orig", None) or (error.__cause__ if error.__cause__ is not None else error)
    lines = str(getattr(cause, "orig", None) or cause).strip().splitlines() or [type(error).__name__]
    told = lines[0].rstrip(".")
    for secret in (url.password, url.query.get("password")):
        told = told.replace(str(secret), "***") if secret else told
    return told
