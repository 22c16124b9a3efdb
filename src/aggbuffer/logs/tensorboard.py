"""TensorBoard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aggbuffer.callbacks import RunInfo
from aggbuffer.extras import require
from aggbuffer.logs.base import Logger, made_folder, metrics
from aggbuffer.result import EpochRecord, FitResult


class TensorBoard(Logger):
    """Event files that ``tensorboard --logdir FOLDER`` shows: a curve for each number of an epoch, settings as text.

    Args:
        folder: Where to; a folder for each run keeps their curves apart.
    """

    def __init__(self, folder: str | Path) -> None:
        require("tensorboard", "tensorboard", "A log for TensorBoard")
        self.folder = Path(folder)
        self._writer: Any = None

    def open(self, info: RunInfo) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Epochs after the checkpoint are run again; purge_step hides what was logged of them before.
        again = {"purge_step": info.epochs_done + 1} if info.epochs_done else {}
        self._writer = SummaryWriter(str(made_folder(self.folder)), **again)
        told = json.dumps(info.to_dict(), indent=2)
        self._writer.add_text("settings", f"```json\n{told}\n```", info.epochs_done)

    def write(self, record: EpochRecord) -> None:
        for name, value in metrics(record).items():
            self._writer.add_scalar(name, value, record.epoch)

    def close(self, result: FitResult) -> None:
        told = f"stopped on {result.stopped} after {result.epochs} epochs; epoch {result.best_epoch} was kept"
        self._writer.add_text("result", told, result.epochs)
        self._writer.close()
