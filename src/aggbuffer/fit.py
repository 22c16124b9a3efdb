"""Train the buffers of a frozen model with the robustness-controlled loss and DropEdge."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aggbuffer import losses
from aggbuffer.callbacks import Callback
from aggbuffer.config import BatchConfig, FitConfig, check_number
from aggbuffer.errors import ConfigError, GraphError, ModelError, ModelTypeError
from aggbuffer.fast.memory import kept_between_steps, told_when_memory_runs_out
from aggbuffer.files import checked_path
from aggbuffer.graph import Graph
from aggbuffer.layers import evaluation_mode
from aggbuffer.model import BufferedGNN
from aggbuffer.progress import progress_display
from aggbuffer.result import EpochRecord, FitResult
from aggbuffer.scale.distributed import current_ranks, telling_how_to_go_on
from aggbuffer.scale.ranks import Ranks
from aggbuffer.scale.source import GraphSource, is_source
from aggbuffer.scale.training import BatchTraining
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
    loss: losses.LossFunction | str | None = None,
    perturb: Perturbation | None = None,
    loader: Iterable[Any] | None = None,
    ranks: Ranks | None = None,
    **overrides: Any,
) -> FitResult:
    """Train the buffers alone; the best state is in the model on return, and the base is as it was.

    Needs no labels: without them (or without validation nodes) training stops on the loss itself, over fixed draws of
    perturbed graphs, on nodes held out from it.

    Args:
        model: What :func:`attach` returned.
        data: The graph to train on, in memory or on disk.
        config: Settings; single ones may be given as keywords instead, as in ``fit(model, data, drop_edge=0.7)``.
        train_mask: Nodes of the bias term: a name in ``data``, a bool mask, or node numbers. Without it, all nodes
            that are not held out.
        val_mask: Nodes to stop on.
        progress: Show progress; by default where standard error is a terminal.
        checkpoint: A file to go on from after an interruption, and to write such points to.
        checkpoint_every: Seconds between two of them.
        callbacks: Called with every :class:`EpochRecord`; one that returns True ends the run. They may also hear of
            its start and end, see :data:`aggbuffer.callbacks.Callback`; :mod:`aggbuffer.logs` has some.
        loss: A name that ``config`` knows, or a function of your own.
        perturb: ``perturb(graph, generator) -> Data`` instead of DropEdge.
        loader: A PyG loader to train on the batches of, such as ``NeighborLoader``; its batches need ``n_id``. Their
            first ``batch_size`` nodes are what the loss is computed on, or all nodes where they do not tell. Which
            batches come is the loader's own matter, so a resumed run may see others.
        ranks: The processes that share the work; each calls ``fit`` with the same arguments. By default those of
            ``torch.distributed``, where it was initialised. Without ``batch``, all nodes are the seeds of every step.

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
    if isinstance(loss, str):  # the setting of that name
        overrides, loss = {**overrides, "loss": loss}, None
    config = config.override(**overrides)
    callbacks = _checked_functions(callbacks, loss, perturb)
    check_number("checkpoint_every", checkpoint_every, 0, math.inf)
    path = checked_path(checkpoint) if checkpoint is not None else None
    ranks = current_ranks() if ranks is None else ranks
    device = model.buffer_parameters()[0].device.type
    with (
        evaluation_mode(model.base),
        # Whatever the caller has set: training needs gradients, in the model's own precision.
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast(device, enabled=False),
        telling_how_to_go_on(path),
        told_when_memory_runs_out(),
    ):
        source = data if is_source(data) else GraphSource(Graph.of(data))
        if isinstance(source, GraphSource):
            given = source.graph.data.to_dict().values()
            if any(isinstance(value, Tensor) and value.is_inference() for value in given):
                raise GraphError("The graph was made in inference mode, which allows no training; pass data.clone().")
        if ranks is not None and config.batch is None and loader is None and isinstance(source, GraphSource):
            # What processes share are the seeds of a step; all nodes are those of a full batch.
            config = config.override(batch=BatchConfig(seeds=source.num_nodes))
        if config.batch is not None or loader is not None:
            training: Training = BatchTraining(
                model, source, config, train_mask, val_mask, loss, perturb, loader, ranks
            )
        elif isinstance(source, GraphSource):
            training = Training(model, source.graph, config, train_mask, val_mask, loss, perturb)
        else:
            raise ConfigError(
                "A graph on disk is trained on in mini-batches; pass batch=aggbuffer.BatchConfig(...) (--batch-size)."
            )
        display = progress_display(progress, config)
        with kept_between_steps():  # and not before: what preparing a large graph frees would be kept, too
            return training.run(path, checkpoint_every, [*callbacks, *([] if display is None else [display])])


def _checked_functions(callbacks: Iterable[Callback], loss: object, perturb: object) -> list[Callback]:
    for name, function in (("loss", loss), ("perturb", perturb)):
        if function is not None and not callable(function):
            raise ConfigError(f"{name} is a {type(function).__name__}; expected a function.")
    try:
        found = list(callbacks)
    except TypeError:
        raise ConfigError(f"callbacks is a {type(callbacks).__name__}; expected a list of functions.") from None
    for function in found:
        if not callable(function):
            raise ConfigError(f"callbacks holds a {type(function).__name__}; expected functions.")
    return found
