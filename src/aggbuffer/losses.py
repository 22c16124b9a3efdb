"""The robustness-controlled loss and the paper's alternatives, as plain functions of logits.

Every divergence is computed from log-probabilities: from probabilities, a saturated model gives log 0 and NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from aggbuffer.config import Loss
from aggbuffer.targets import Labels, Task


def divergence(target: Tensor, other: Tensor, task: Task) -> Tensor:
    """D( target ‖ other ) of every node, ``[N]``, from logits ``[N, C]``.

    The Kullback-Leibler divergence of what the task's outputs mean: a categorical distribution, one Bernoulli
    distribution a label (summed), or a Gaussian of unit variance (half the squared distance). Half precision is widened
    first: in it, rounding swamps the divergence of two models that almost agree.
    """
    target, other = _wide(target), _wide(other)
    if task == "regression":
        return 0.5 * (target - other).square().sum(-1)
    if task == "multilabel":
        # Pairs (log p, log (1 - p)) make each label a distribution over two outcomes.
        target = torch.stack([F.logsigmoid(target), F.logsigmoid(-target)])
        other = torch.stack([F.logsigmoid(other), F.logsigmoid(-other)])
        return (target.exp() * (target - other)).sum((0, -1))
    # Classes along the first dimension: with a few numbers in a row, torch's softmax takes five times as long.
    target, other = (F.log_softmax(logits.t().contiguous(), 0) for logits in (target, other))
    return (target.exp() * (target - other)).sum(0)


def supervised(logits: Tensor, labels: Labels, nodes: Tensor) -> Tensor:
    """The usual loss of the task on labelled nodes: cross-entropy, per-label cross-entropy, or half squared error."""
    logits, values = _wide(logits), labels.values[nodes]
    if labels.task == "multiclass":
        return F.cross_entropy(logits[nodes], values)
    if labels.task == "multilabel":
        return F.binary_cross_entropy_with_logits(logits[nodes], values.to(logits.dtype))
    return 0.5 * F.mse_loss(logits[nodes], values.to(logits.dtype))


@dataclass(frozen=True)
class StepOutputs:
    """What a training step hands to a loss.

    Attributes:
        teacher: Logits of the frozen base on the whole graph, ``[N, C]``.
        clean: Logits of the buffered model on the whole graph, ``[N, C]``.
        perturbed: Logits of the buffered model on the perturbed graph, ``[N, C]``.
        train: Training nodes, ``[M]``.
        labels: Where there are any.
        task: What the logits mean.
    """

    teacher: Tensor
    clean: Tensor
    perturbed: Tensor
    train: Tensor
    labels: Labels | None
    task: Task

    def only(self, nodes: Tensor) -> StepOutputs:
        """The same for a part of the nodes, all of which then count in both terms."""
        labels = self.labels and Labels(self.task, self.labels.values[nodes], self.labels.outputs)
        everyone = torch.arange(nodes.numel(), device=nodes.device)
        teacher, clean, perturbed = (logits[nodes] for logits in (self.teacher, self.clean, self.perturbed))
        return StepOutputs(teacher, clean, perturbed, everyone, labels, self.task)


@dataclass(frozen=True)
class LossTerms:
    """The two terms of a loss, both scalars; training minimises ``bias + strength * robust``."""

    bias: Tensor
    robust: Tensor


LossFunction = Callable[[StepOutputs], LossTerms]


def robustness_controlled(
    step: StepOutputs, *, robust_on_train: bool = False, detach_target: bool = False
) -> LossTerms:
    """L_RC of the paper: stay with the base on training nodes, stay with yourself on all nodes when edges go."""
    clean = step.clean.detach() if detach_target else step.clean
    robust = divergence(clean, step.perturbed, step.task)
    teacher, answers = (logits.index_select(0, step.train) for logits in (step.teacher, step.clean))
    return LossTerms(
        bias=divergence(teacher, answers, step.task).mean(),
        robust=(robust[step.train] if robust_on_train else robust).mean(),
    )


def cross_entropy(step: StepOutputs) -> LossTerms:
    """Ablation: labels of the training nodes, on the perturbed graph."""
    assert step.labels is not None
    return LossTerms(supervised(step.perturbed, step.labels, step.train), _zero(step))


def pseudo_label(step: StepOutputs) -> LossTerms:
    """Ablation: the base's hard predictions on all nodes, on the perturbed graph."""
    if step.task == "multiclass":
        hard = Labels(step.task, step.teacher.argmax(-1), step.teacher.size(-1))
    else:
        values = (step.teacher > 0).to(step.teacher.dtype) if step.task == "multilabel" else step.teacher
        hard = Labels(step.task, values, step.teacher.size(-1))
    everyone = torch.arange(step.teacher.size(0), device=step.teacher.device)
    return LossTerms(supervised(step.perturbed, hard, everyone), _zero(step))


def self_distillation(step: StepOutputs) -> LossTerms:
    """Ablation: the base's soft predictions on all nodes, on the perturbed graph."""
    return LossTerms(divergence(step.teacher, step.perturbed, step.task).mean(), _zero(step))


def named(loss: Loss, *, detach_target: bool = False) -> LossFunction:
    """The loss of a name from ``FitConfig``."""
    if loss in ("rc", "rc_train"):
        return lambda step: robustness_controlled(step, robust_on_train=loss == "rc_train", detach_target=detach_target)
    return {"cross_entropy": cross_entropy, "pseudo_label": pseudo_label, "self_distillation": self_distillation}[loss]


def _wide(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def _zero(step: StepOutputs) -> Tensor:
    return torch.zeros((), dtype=step.clean.dtype, device=step.clean.device)
