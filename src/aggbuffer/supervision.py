"""Which nodes and labels a fit learns from and is stopped on; what is missing is filled in as ``fit`` says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aggbuffer.config import FitConfig
from aggbuffer.errors import ConfigError, GraphError
from aggbuffer.perturb import generator_on
from aggbuffer.targets import Labels, Task, infer_task, refuse_overlap, select

_HELD_OUT = 0.1


@dataclass(frozen=True)
class Supervision:
    """Checked nodes and labels.

    Attributes:
        train: Nodes of the bias term, ``[M]``.
        val: Nodes to stop on, ``[V]``; held out at random where the user has named none.
        labels: None without labels, or without validation nodes of the user's.
        task: What the model's outputs mean.
    """

    train: Tensor
    val: Tensor
    labels: Labels | None
    task: Task

    @classmethod
    def of(
        cls,
        data: Any,
        count: int,
        device: torch.device,
        outputs: int,
        config: FitConfig,
        train_mask: str | Tensor,
        val_mask: str | Tensor,
    ) -> Supervision:
        """Find them in the graph.

        Args:
            data: What has labels and masks by name.
            count: N.
            device: Of the features.
            outputs: C, how many outputs the model has.
            config: Settings of the fit.
            train_mask: A name in the data, a bool mask, or node numbers.
            val_mask: Likewise.
        """
        y = data.get("y")
        if y is not None and not isinstance(y, Tensor):
            raise GraphError(f"data.y is a {type(y).__name__}; expected a tensor with one row per node.")
        train = _named(data, count, train_mask, "train_mask")
        val = _named(data, count, val_mask, "val_mask")
        if config.loss == "cross_entropy" and (y is None or train is None or val is None):
            raise ConfigError("loss='cross_entropy' needs data.y, a train_mask and a val_mask; give all three.")
        if train is not None and val is not None:
            refuse_overlap(train, val, ("train_mask", "val_mask"))
        labelled = y is not None and val is not None
        if val is None:
            val = _held_out(train, count, config.seed).to(device)
        if train is None:
            train = _others(val, count)
        used = val if config.loss != "cross_entropy" else torch.cat([train, val])
        labels = Labels.of(y, count, outputs, used, config.task) if labelled else None
        return cls(train, val, labels, labels.task if labels else infer_task(y, outputs, config.task))


def _named(data: Any, count: int, mask: str | Tensor, usual: str) -> Tensor | None:
    nodes = select(data, mask, count)
    if nodes is None and mask is not None and mask != usual:
        raise GraphError(f"The graph has no {mask!r}; set data.{mask}, or name the {usual} that it has.")
    return nodes


def _held_out(train: Tensor | None, count: int, seed: int) -> Tensor:
    """A random tenth of the nodes, none of them a training node unless all are."""
    free = torch.ones(count, dtype=torch.bool)
    if train is not None and train.numel() < count:
        free[train.cpu()] = False
    candidates = free.nonzero().squeeze(-1)
    order = torch.randperm(candidates.numel(), generator=generator_on(torch.device("cpu"), seed))
    return candidates[order[: max(1, round(_HELD_OUT * count))]]


def _others(nodes: Tensor, count: int) -> Tensor:
    left = torch.ones(count, dtype=torch.bool, device=nodes.device)
    left[nodes] = False
    if not bool(left.any()):
        raise GraphError("The val_mask selects every node, which leaves none to train on; give a train_mask.")
    return left.nonzero().squeeze(-1)
