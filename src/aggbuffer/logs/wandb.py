"""Weights & Biases."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from aggbuffer.callbacks import RunInfo
from aggbuffer.extras import require
from aggbuffer.logs.base import Logger, made_folder, metrics
from aggbuffer.result import EpochRecord, FitResult


class WandB(Logger):
    """A run in a local folder, for ``wandb sync`` to upload whenever you like.

    Offline unless you say otherwise, here or by the environment variable ``WANDB_MODE``. A run that goes on from a
    checkpoint is a new run in W&B.

    Args:
        folder: Where to; W&B makes its folder ``wandb`` in it.
        project: Its project.
        name: Of the run; W&B finds one itself by default.
        mode: ``"offline"``, ``"online"`` or ``"disabled"``; by default ``$WANDB_MODE``, else ``"offline"``.
    """

    def __init__(
        self, folder: str | Path, *, project: str = "aggbuffer", name: str | None = None, mode: str | None = None
    ) -> None:
        require("wandb", "wandb", "A log for Weights & Biases")
        self.folder, self.project, self.name, self.mode = Path(folder), project, name, mode
        self._run: Any = None

    def open(self, info: RunInfo) -> None:
        mode: Any = self.mode or os.environ.get("WANDB_MODE") or "offline"
        if mode != "online":
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # it would report its own crashes over the network
        import wandb

        self._run = wandb.init(
            dir=str(made_folder(self.folder)),
            project=self.project,
            name=self.name,
            mode=mode,
            config=info.to_dict(),
            reinit="create_new",  # whatever run the caller has open stays the current one
            settings=wandb.Settings(silent=True, console="off"),  # the terminal is not its to write to
        )

    def write(self, record: EpochRecord) -> None:
        self._run.log(metrics(record), step=record.epoch)

    def close(self, result: FitResult) -> None:
        self._run.summary.update({"best_epoch": result.best_epoch, "stopped": result.stopped})
        self._run.finish(exit_code=1 if result.stopped == "error" else 0)
