"""Labels, masks and the task they imply: checked once, so that nothing later has to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from aggbuffer.config import TaskName
from aggbuffer.errors import ConfigError, GraphError

Task = Literal["multiclass", "multilabel", "regression"]


def infer_task(labels: Tensor | None, outputs: int, task: TaskName = "auto") -> Task:
    """The task that labels and the model's number of outputs imply, or the one that the user names.

    Whole-numbered labels ``[N]`` mean one class of several; a 0/1 matrix ``[N, L]`` means several labels at once, and
    so does a model with one output for 0/1 labels; any other float labels mean regression. Without labels the model is
    taken for a classifier.
    """
    if task != "auto":
        return task
    if labels is None:
        if outputs == 1:
            raise ConfigError(
                "The model has one output and the graph no labels; say task='multilabel' or 'regression'."
            )
        return "multiclass"
    flat = labels.squeeze(-1) if labels.dim() == 2 and labels.size(1) == 1 else labels
    unlabelled = labels.isnan() if labels.is_floating_point() else labels == -1
    binary = bool(((labels == 0) | (labels == 1) | unlabelled).all())
    if flat.dim() == 1 and not flat.is_floating_point() and outputs > 1:
        return "multiclass"
    if binary and (labels.dim() == 2 or outputs == 1):
        return "multilabel"
    return "regression"


@dataclass(frozen=True)
class Labels:
    """Checked labels.

    Attributes:
        task: What they are labels of.
        values: ``[N]`` int64 for multi-class, ``[N, L]`` float otherwise.
        outputs: C, how many outputs the model has.
    """

    task: Task
    values: Tensor
    outputs: int

    @classmethod
    def of(cls, labels: object, num_nodes: int, outputs: int, nodes: Tensor, task: TaskName = "auto") -> Labels:
        """Check the labels of ``nodes``; labels elsewhere may be anything, as unlabelled nodes often carry -1."""
        if not isinstance(labels, Tensor):
            raise GraphError(f"data.y is {type(labels).__name__}; expected a tensor with one row per node.")
        if labels.dim() not in (1, 2) or labels.size(0) != num_nodes:
            raise GraphError(f"data.y has shape {list(labels.shape)}; expected one row for each of {num_nodes} nodes.")
        kind = infer_task(labels[nodes], outputs, task)
        if kind == "multiclass":
            return cls(kind, _classes(labels, outputs, nodes), outputs)
        values = labels.unsqueeze(-1) if labels.dim() == 1 else labels
        values = values if values.is_floating_point() else values.float()
        if values.size(1) != outputs:
            hint = " If these are classes, call data.y.long()." if labels.dim() == 1 else ""
            raise GraphError(
                f"data.y has {values.size(1)} columns, but the model has {outputs} outputs; they must agree.{hint}"
            )
        if not bool(torch.isfinite(values[nodes]).all()):
            raise GraphError("data.y holds NaN or infinite labels on nodes that a mask selects; leave those nodes out.")
        if kind == "multilabel" and not bool(((values[nodes] == 0) | (values[nodes] == 1)).all()):
            raise GraphError("data.y holds labels other than 0 and 1; expected a 0/1 matrix for a multi-label task.")
        return cls(kind, values, outputs)


def _classes(labels: Tensor, outputs: int, nodes: Tensor) -> Tensor:
    if labels.dim() == 2 and labels.size(1) == 1:
        labels = labels.squeeze(-1)
    if labels.dim() != 1 or labels.is_floating_point():
        raise GraphError(
            f"data.y has shape {list(labels.shape)} and dtype {labels.dtype}; expected [nodes] whole numbers for a "
            "multi-class task."
        )
    used = labels[nodes].long()
    if used.numel() and (int(used.min()) < 0 or int(used.max()) >= outputs):
        raise GraphError(
            f"data.y holds labels from {int(used.min())} to {int(used.max())}, but the model has {outputs} outputs; "
            f"expected 0 to {outputs - 1}."
        )
    return labels.long()


def select(data: Any, mask: str | Tensor, num_nodes: int) -> Tensor | None:
    """Node numbers that a mask selects, ``[M]``; None if ``mask`` names an attribute that the data lacks.

    Args:
        data: The user's data, in which a name is looked up.
        mask: A name such as ``"test_mask"``, a bool mask ``[N]``, or node numbers.
    """
    name = f"data.{mask}" if isinstance(mask, str) else "The mask"
    value = data.get(mask) if isinstance(mask, str) else mask
    if value is None:
        return None
    if not isinstance(value, Tensor):
        try:
            value = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise GraphError(f"{name} is a {type(value).__name__}; expected a bool mask or node numbers.") from error
    if value.dtype == torch.bool:
        if value.dim() != 1 or value.numel() != num_nodes:
            raise GraphError(f"{name} has shape {list(value.shape)}; expected a bool mask of length {num_nodes}.")
        nodes = value.nonzero().squeeze(-1)
    else:
        if value.dim() != 1 or value.is_floating_point():
            raise GraphError(
                f"{name} has shape {list(value.shape)} and dtype {value.dtype}; expected a bool mask or nodes."
            )
        nodes = value.long()
        if nodes.numel() and (int(nodes.min()) < 0 or int(nodes.max()) >= num_nodes):
            raise GraphError(
                f"{name} refers to nodes {int(nodes.min())} to {int(nodes.max())}; expected 0 to {num_nodes - 1}."
            )
        if torch.unique(nodes).numel() != nodes.numel():
            raise GraphError(
                f"{name} names some node twice; expected each once. A mask of 0 and 1 needs .bool() first."
            )
    if nodes.numel() == 0:
        raise GraphError(f"{name} is empty; expected at least one node.")
    return nodes


def refuse_overlap(first: Tensor, second: Tensor, names: tuple[str, str]) -> None:
    """Training and validation nodes must differ."""
    common = int(torch.isin(first, second).sum())
    if common:
        raise GraphError(f"{names[0]} and {names[1]} share {common} nodes; expected masks that do not overlap.")
