"""MLflow."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aggbuffer.callbacks import RunInfo
from aggbuffer.errors import ConfigError
from aggbuffer.extras import require
from aggbuffer.logs.base import Logger, flat, made_folder, metrics
from aggbuffer.result import EpochRecord, FitResult

_STATUS = {"interrupted": "KILLED", "error": "FAILED"}
# A write takes longer than many an epoch; MLflow takes 1,000 values at once.
_SECONDS_BETWEEN_WRITES, _MOST_PENDING = 1.0, 900
_TALKERS = ("mlflow", "alembic")  # both tell at length how they set up a new database


class MLflow(Logger):
    """A run with settings as parameters and a metric for each number of an epoch.

    Nothing global of MLflow is touched: no active run, no tracking URI. A run that goes on from a checkpoint is a new
    run in MLflow.

    Args:
        folder: Where to keep the database ``mlflow.db`` and artefacts; ``mlflow ui --backend-store-uri
            sqlite:///FOLDER/mlflow.db`` shows them.
        uri: A tracking server or store instead of a folder.
        experiment: Name of the experiment, made if it is not there.
        name: Of the run; MLflow finds one itself by default.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        uri: str | None = None,
        experiment: str = "aggbuffer",
        name: str | None = None,
    ) -> None:
        require("mlflow", "mlflow", "A log for MLflow")
        if (folder is None) == (uri is None):
            raise ConfigError("MLflow expects either a folder or uri=<tracking server>.")
        self.folder, self.uri = None if folder is None else Path(folder), uri
        self.experiment, self.name = experiment, name
        self._client: Any = None
        self._run = ""
        self._pending: list[Any] = []
        self._written = 0.0

    def open(self, info: RunInfo) -> None:
        artifacts, uri = None, self.uri
        if self.folder is not None:
            folder = made_folder(self.folder).resolve()
            uri, artifacts = f"sqlite:///{folder / 'mlflow.db'}", (folder / "artifacts").as_uri()
        self._pending, self._written = [], time.monotonic()
        with _silence():
            from mlflow.entities import Param
            from mlflow.tracking import MlflowClient

            self._client = MlflowClient(tracking_uri=uri)
            found = self._client.get_experiment_by_name(self.experiment)
            experiment = (
                self._client.create_experiment(self.experiment, artifact_location=artifacts)
                if found is None
                else found.experiment_id
            )
            self._run = self._client.create_run(experiment, run_name=self.name).info.run_id
            settings = [Param(key, str(value)) for key, value in flat(info.to_dict()).items()]
            self._client.log_batch(self._run, params=settings)

    def write(self, record: EpochRecord) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._pending += [Metric(name, value, now, record.epoch) for name, value in metrics(record).items()]
        if time.monotonic() - self._written > _SECONDS_BETWEEN_WRITES or len(self._pending) > _MOST_PENDING:
            self._flush()

    def close(self, result: FitResult) -> None:
        self._flush()
        for key in ("best_epoch", "stopped"):
            self._client.set_tag(self._run, key, str(getattr(result, key)))
        self._client.set_terminated(self._run, _STATUS.get(result.stopped, "FINISHED"))

    def _flush(self) -> None:
        self._client.log_batch(self._run, metrics=self._pending)
        self._pending, self._written = [], time.monotonic()


@contextmanager
def _silence() -> Iterator[None]:
    """No chatter and no deprecations of the libraries below, while MLflow is imported and sets up its database."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would tell its makers over the network
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlflow  # noqa: F401 (it sets up its logging)

        loggers = [logging.getLogger(name) for name in _TALKERS]
        levels = [each.level for each in loggers]
        try:
            for each in loggers:
                each.setLevel(logging.WARNING)
            yield
        finally:
            for each, level in zip(loggers, levels, strict=True):
                each.setLevel(level)
