"""What training on mini-batches is stopped on: the same scores as in a full batch, from logits of validation nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from aggbuffer import losses
from aggbuffer.monitors import LabelledMonitor, Monitor, accuracy_of, wants_no_labels
from aggbuffer.targets import Labels

if TYPE_CHECKING:
    from aggbuffer.scale.training import BatchTraining

_FIXED_DRAWS = (-1, -2)  # steps that no training has


class BatchLabelFreeMonitor:
    """The loss itself on held-out nodes, over the same few perturbed graphs every time."""

    name = "rc_loss"

    def __init__(self, training: BatchTraining) -> None:
        self.training = training
        self.labels = _labels_of_val(training)
        with training.model.disabled():
            self.teacher = training.everywhere(training.inference.logits())

    def score(self, logits: Tensor) -> tuple[float, float, float]:
        training = self.training
        everyone = torch.arange(logits.size(0))
        total = 0.0
        for number in _FIXED_DRAWS:
            perturbed = training.everywhere(training.inference.logits(training.draw(number)))
            task = training.supervision.task
            terms = training.loss(losses.StepOutputs(self.teacher, logits, perturbed, everyone, self.labels, task))
            total += (terms.bias + training.config.strength * terms.robust).item() / len(_FIXED_DRAWS)
        if self.labels is None:
            return total, float("nan"), float("nan")
        loss = losses.supervised(logits, self.labels, everyone).item()
        return total, loss, accuracy_of(logits, self.labels, everyone)


def choose_batch_monitor(training: BatchTraining) -> Monitor:
    """The monitor that the settings ask for; the label-free one where there is nothing else to go by."""
    seen = training.supervision
    if wants_no_labels(training.config.monitor, seen):
        return BatchLabelFreeMonitor(training)
    labels = _labels_of_val(training)
    assert labels is not None
    return LabelledMonitor(training.config.monitor, labels, torch.arange(seen.val.numel()))


def _labels_of_val(training: BatchTraining) -> Labels | None:
    labels = training.supervision.labels
    if labels is None:
        return None
    return Labels(labels.task, labels.values[training.supervision.val], labels.outputs)
