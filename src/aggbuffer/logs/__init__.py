"""Loggers for ``fit(..., callbacks=[...])``: JSON lines, TensorBoard, MLflow, Weights & Biases.

Each keeps to :data:`aggbuffer.callbacks.Callback`, and none opens a network connection unless it is told to.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aggbuffer.logs.base import Logger
    from aggbuffer.logs.jsonl import JsonLines
    from aggbuffer.logs.mlflow import MLflow
    from aggbuffer.logs.tensorboard import TensorBoard
    from aggbuffer.logs.wandb import WandB

__all__ = ["JsonLines", "Logger", "MLflow", "TensorBoard", "WandB"]

_HOME = {"JsonLines": "jsonl", "Logger": "base", "MLflow": "mlflow", "TensorBoard": "tensorboard", "WandB": "wandb"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
