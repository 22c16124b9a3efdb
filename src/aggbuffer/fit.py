"""Train the buffers of a frozen model with the robustness-controlled loss and DropEdge."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aggbuffer import losses
from aggbuffer.config import FitConfig
from aggbuffer.errors import ConfigError, ModelError, ModelTypeError
from aggbuffer.graph import Graph
from aggbuffer.layers import evaluation_mode
from aggbuffer.model import BufferedGNN
from aggbuffer.progress import show_progress
from aggbuffer.result import Callback, EpochRecord, FitResult
from aggbuffer.training import Perturbation, Training

__all__ = ["Callback", "EpochRecord", "FitResult", "Perturbation", "fit"]


def fit(
    model: BufferedGNN,
    data: object,
    config: FitConfig | None = None,
    *,
    train_mask: str | Tensor = "train_mask",
    val_mask: str | Tensor = "val_mask",
    progress: bool | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: float = 10.0,
    callbacks: Iterable[Callback] = (),
    loss: losses.LossFunction | None = None,
    perturb: Perturbation | None = None,
    **overrides: Any,
) -> FitResult:
    """Train the buffers alone; the best state is in the model on return, and the base is as it was.

    Needs no labels: without them (or without validation nodes) training stops on the loss itself, over fixed draws of
    perturbed graphs, on nodes held out from it.

    Args:
        model: What :func:`attach` returned.
        data: The graph to train on.
        config: Settings; single ones may be given as keywords instead, as in ``fit(model, data, drop_edge=0.7)``.
        train_mask: Nodes of the bias term: a name in ``data``, a bool mask, or node numbers. Without it, all nodes
            that are not held out.
        val_mask: Nodes to stop on.
        progress: Show progress; by default where standard error is a terminal.
        checkpoint: A file to go on from after an interruption, and to write such points to.
        checkpoint_every: Seconds between two of them.
        callbacks: Called with every :class:`EpochRecord`; one that returns True ends the run.
        loss: Instead of the one that ``config`` names.
        perturb: ``perturb(graph, generator) -> Data`` instead of DropEdge.

    Raises:
        AggBufferError: For input that cannot be used, before anything was changed.

    Example:
        >>> result = aggbuffer.fit(model, data, drop_edge=0.5, strength=0.5, seed=0)
    """
    if not isinstance(model, BufferedGNN):
        raise ModelTypeError(f"The model is a {type(model).__name__}; expected what aggbuffer.attach returns.")
    if not model._enabled:
        raise ModelError("The model's buffers are detached or disabled; attach them, and call fit outside disabled().")
    config = FitConfig() if config is None else config
    if not isinstance(config, FitConfig):
        raise ConfigError(f"config is a {type(config).__name__}; expected a FitConfig, or its settings as keywords.")
    config = config.override(**overrides)
    path = None if checkpoint is None else Path(checkpoint)
    with evaluation_mode(model.base), torch.enable_grad():  # whatever the caller has set
        training = Training(model, Graph.of(data), config, train_mask, val_mask, loss, perturb)
        with training.passes.ready(), show_progress(progress, config, training.monitor.name) as report:
            return training.run(path, checkpoint_every, [report, *callbacks])
