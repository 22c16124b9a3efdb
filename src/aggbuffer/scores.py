"""Accuracy, macro-F1 and their paired bootstrap, from predictions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from aggbuffer.targets import Task

_RESAMPLES_AT_ONCE = 64


@dataclass(frozen=True)
class Score:
    """How good predictions on some nodes are.

    Attributes:
        accuracy: Share of right classes, or of right labels; NaN for regression.
        macro_f1: F1 averaged over classes; NaN for regression.
        count: Number of nodes.
        deviation: Standard deviation of the accuracy over repeated draws of removed edges; 0 for a single one.
        rmse: Root mean squared error for regression, else NaN.
    """

    accuracy: float
    macro_f1: float
    count: int
    deviation: float = 0.0
    rmse: float = math.nan


def predict(logits: Tensor, task: Task) -> Tensor:
    """Classes ``[N]``, labels ``[N, L]`` bool, or values ``[N, L]``."""
    if task == "multiclass":
        return logits.argmax(-1)
    return logits > 0 if task == "multilabel" else logits


def score(predicted: Tensor, labels: Tensor, task: Task) -> Score:
    """Score of predictions against labels of the same nodes."""
    count = int(labels.size(0))
    if count == 0:
        return Score(math.nan, math.nan, 0)
    if task == "regression":
        return Score(math.nan, math.nan, count, rmse=quality(predicted, labels, task).neg().mean().sqrt().item())
    weights = torch.ones(1, count, dtype=torch.float64)
    return Score(
        quality(predicted, labels, task).mean().item(), macro_f1(_hits(predicted, labels, task), weights).item(), count
    )


def quality(predicted: Tensor, labels: Tensor, task: Task) -> Tensor:
    """What is averaged over nodes, ``[N]`` float64: rightness, share of right labels, or minus the squared error."""
    if task == "multiclass":
        return (predicted == labels).double()
    if task == "multilabel":
        return (predicted == (labels > 0.5)).double().mean(-1)
    return -(predicted.double() - labels.double()).square().mean(-1)


def macro_f1(hits: Tensor, weights: Tensor) -> Tensor:
    """Macro-F1 of each weighting of the nodes, ``[B]``.

    Args:
        hits: ``[N, 2, C]``: true positives, and predicted plus actual positives, of each node and class.
        weights: ``[B, N]``: how often each node counts.
    """
    true_positive, positives = (weights @ hits.flatten(1)).view(-1, *hits.shape[1:]).unbind(1)
    present = positives > 0
    f1 = torch.where(present, 2 * true_positive / positives.clamp(min=1), 0.0)
    return f1.sum(-1) / present.sum(-1).clamp(min=1)


def _hits(predicted: Tensor, labels: Tensor, task: Task) -> Tensor:
    """The per-node table that :func:`macro_f1` adds up, ``[N, 2, C]`` float64."""
    if task == "multilabel" and labels.size(1) == 1:  # two classes, not one label: F1 counts both
        predicted, labels = predicted.squeeze(1).long(), (labels.squeeze(1) > 0.5).long()
        task = "multiclass"
    if task == "multiclass":
        classes = int(torch.maximum(predicted.max(), labels.max())) + 1
        guess = torch.nn.functional.one_hot(predicted, classes)
        truth = torch.nn.functional.one_hot(labels, classes)
    else:
        guess, truth = predicted.long(), (labels > 0.5).long()
    return torch.stack([guess * truth, guess + truth], dim=1).double()


@dataclass(frozen=True)
class Interval:
    """A paired difference and its bootstrap interval."""

    difference: float
    low: float
    high: float


def paired_bootstrap(
    before: Tensor, after: Tensor, labels: Tensor, task: Task, *, resamples: int, level: float, seed: int
) -> tuple[Interval, Interval]:
    """Intervals of after - before in accuracy (minus mean squared error for regression) and in macro-F1.

    Nodes are resampled, the same for both sides; repeated draws of removed edges are averaged within a node.

    Args:
        before: Predictions of every draw, ``[R, N, …]``.
        after: The same of the other model.
        labels: ``[N, …]``.
        task: What they are.
        resamples: Number of bootstrap samples.
        level: Coverage of the interval.
        seed: Of the resampling.
    """
    count = labels.size(0)
    if count == 0:
        nothing = Interval(math.nan, math.nan, math.nan)
        return nothing, nothing
    gain = torch.stack(
        [quality(a, labels, task) - quality(b, labels, task) for b, a in zip(before, after, strict=True)]
    )
    per_node = gain.mean(0)
    hits = [] if task == "regression" else [_joint_hits(b, a, labels, task) for b, a in zip(before, after, strict=True)]
    generator = torch.Generator().manual_seed(seed)
    means, f1s = [], []
    for start in range(0, resamples, _RESAMPLES_AT_ONCE):
        size = min(_RESAMPLES_AT_ONCE, resamples - start)
        drawn = torch.randint(count, (size, count), generator=generator)
        weights = torch.zeros(size, count, dtype=torch.float64)
        weights.scatter_add_(1, drawn, torch.ones(size, count, dtype=torch.float64))
        means.append(weights @ per_node / count)
        f1s.append(_f1_gain(hits, weights))
    ones = torch.ones(1, count, dtype=torch.float64)
    return (
        _interval(per_node.mean().item(), torch.cat(means), level),
        _interval(_f1_gain(hits, ones).item(), torch.cat(f1s), level),
    )


def _joint_hits(before: Tensor, after: Tensor, labels: Tensor, task: Task) -> tuple[Tensor, Tensor]:
    return _hits(before, labels, task), _hits(after, labels, task)


def _f1_gain(hits: list[tuple[Tensor, Tensor]], weights: Tensor) -> Tensor:
    if not hits:
        return torch.full((weights.size(0),), math.nan, dtype=torch.float64)
    return torch.stack([macro_f1(a, weights) - macro_f1(b, weights) for b, a in hits]).mean(0)


def _interval(difference: float, samples: Tensor, level: float) -> Interval:
    low, high = torch.quantile(samples, torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=samples.dtype)).tolist()
    return Interval(difference, low, high)
