"""What training is stopped on."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from aggbuffer.errors import ConfigError
from aggbuffer.losses import supervised
from aggbuffer.perturb import generator_on
from aggbuffer.targets import Labels

if TYPE_CHECKING:
    from aggbuffer.supervision import Supervision
    from aggbuffer.training import Training

logger = logging.getLogger("aggbuffer")

_FIXED_DRAWS = 2
_DRAW_SEED_OFFSET = 0x5EED  # keeps the monitor's draws apart from the training's


class Monitor(Protocol):
    """Scores the model after each epoch."""

    name: str

    def score(self, logits: Tensor) -> tuple[float, float, float]:
        """Score (lower is better), validation loss and accuracy, from logits ``[N, C]`` on the whole graph."""
        ...


class LabelledMonitor:
    """Validation loss, or validation accuracy."""

    def __init__(self, name: str, labels: Labels, nodes: Tensor) -> None:
        self.name, self.labels, self.nodes = name, labels, nodes

    def score(self, logits: Tensor) -> tuple[float, float, float]:
        loss = supervised(logits, self.labels, self.nodes).item()
        accuracy = accuracy_of(logits, self.labels, self.nodes)
        return (loss if self.name == "val_loss" else -accuracy), loss, accuracy


class LabelFreeMonitor:
    """The loss itself on held-out nodes, over the same few perturbed graphs every time."""

    name = "rc_loss"

    def __init__(self, training: Training) -> None:
        self.training = training
        generator = generator_on(training.device, training.config.seed + _DRAW_SEED_OFFSET)
        self.draws = [training.perturbed(generator) for _ in range(_FIXED_DRAWS)]

    def score(self, logits: Tensor) -> tuple[float, float, float]:
        training, seen = self.training, self.training.supervision
        total = 0.0
        for draw in self.draws:
            with torch.no_grad():
                outputs = training.outputs(logits, training.passes.run(draw), seen.val)
            terms = training.loss(outputs.only(seen.val))
            total += (terms.bias + training.config.strength * terms.robust).item() / len(self.draws)
        if seen.labels is None:
            return total, float("nan"), float("nan")
        return total, supervised(logits, seen.labels, seen.val).item(), accuracy_of(logits, seen.labels, seen.val)


def choose_monitor(training: Training) -> Monitor:
    """The monitor that the settings ask for; the label-free one where there is nothing else to go by."""
    wanted, seen = training.config.monitor, training.supervision
    if wants_no_labels(wanted, seen):
        return LabelFreeMonitor(training)
    assert seen.labels is not None
    return LabelledMonitor(wanted, seen.labels, seen.val)


def wants_no_labels(wanted: str, seen: Supervision) -> bool:
    """Whether a run is stopped on the loss itself, as asked for or for want of labels."""
    if wanted == "rc_loss":
        return True
    if wanted == "val_accuracy" and seen.task == "regression":
        raise ConfigError("monitor='val_accuracy' does not apply to regression; use 'val_loss' or 'rc_loss'.")
    if seen.labels is None:
        logger.warning(
            "No labelled validation nodes: training stops on the loss itself over held-out nodes (monitor='rc_loss')."
        )
        return True
    return False


def accuracy_of(logits: Tensor, labels: Labels, nodes: Tensor) -> float:
    """Share of right classes, or of right labels; NaN for regression."""
    values = labels.values[nodes]
    if labels.task == "multiclass":
        return (logits[nodes].argmax(-1) == values).float().mean().item()
    if labels.task == "multilabel":
        return ((logits[nodes] > 0) == (values > 0.5)).float().mean().item()
    return float("nan")
