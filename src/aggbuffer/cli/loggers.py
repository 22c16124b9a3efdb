"""From ``--run`` and ``--log`` to the loggers of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aggbuffer import logs
from aggbuffer.errors import ConfigError

EVENTS = "events.jsonl"
_KINDS = {"tensorboard": "TensorBoard", "mlflow": "MLflow", "wandb": "WandB"}


def loggers(run: Path, wanted: Sequence[str]) -> list[logs.Logger]:
    """JSON lines in the folder of the run, and what else is asked for as ``kind=folder``.

    Raises:
        ConfigError: If one is not of that form.
        LogError: If the package that one needs is not installed.
    """
    from aggbuffer.cli.inputs import check_folder

    found: list[logs.Logger] = [logs.JsonLines(run / EVENTS)]
    for spec in wanted:
        kind, equals, folder = spec.partition("=")
        if kind not in _KINDS or not equals or not folder:
            raise ConfigError(f"--log is {spec!r}; expected tensorboard=FOLDER, mlflow=FOLDER or wandb=FOLDER.")
        check_folder(Path(folder))
        found.append(getattr(logs, _KINDS[kind])(folder))
    return found
