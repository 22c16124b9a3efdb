"""Which predictions the buffer turned, and how classes are confused before and after."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from aggbuffer.evaluate import Predictions
from aggbuffer.scores import quality
from aggbuffer.targets import Task

LISTED = 250  # nodes gained, and as many lost, so that the page stays small
_MOST_CLASSES, _MOST_LABELS, _MOST_OUTPUTS = 12, 30, 4


def flips(before: Predictions, after: Predictions, task: Task, kept: float) -> dict[str, Any]:
    """What turned on the full graph, and in the first draw with a share ``kept`` of its edges.

    Args:
        before: What the base said.
        after: What the model with buffers said of the same nodes.
        task: What the labels are.
        kept: A share of edges that both were evaluated at.
    """
    told = {"full": {"kept": 1.0, **_turned(before, before.full, after.full, task)}}
    if kept < 1:
        less = _turned(before, before.removed[kept][0], after.removed[kept][0], task)
        told["less"] = {"kept": kept, "draws": before.removed[kept].size(0), **less}
    return told


def _turned(nodes: Predictions, was: Tensor, now: Tensor, task: Task) -> dict[str, Any]:
    """Counts, the nodes themselves, and the confusions; predictions are ``[M]`` or ``[M, L]``."""
    gain = quality(now, nodes.labels, task) - quality(was, nodes.labels, task)
    rows: dict[str, list[list[Any]]] = {}
    for name, turned in (("gained", gain > 0), ("lost", gain < 0)):
        at = _first(turned.nonzero().squeeze(-1), gain, nodes)
        rows[name] = [
            [
                int(nodes.nodes[i]),
                int(nodes.degree[i].round()),
                None if math.isnan(float(nodes.agreement[i])) else round(float(nodes.agreement[i]), 3),
                *(_label(values[i], task) for values in (nodes.labels, was, now)),
            ]
            for i in at.tolist()
        ]
    told = {
        "nodes": nodes.nodes.numel(),
        "gained": int((gain > 0).sum()),
        "lost": int((gain < 0).sum()),
        "listed": rows,
    }
    if task == "multiclass":
        told["confusion"] = _confusion(nodes.labels, was, now)
    elif task == "multilabel":
        told["labels"] = _by_label(nodes.labels > 0.5, was, now)
    return told


def _first(at: Tensor, gain: Tensor, nodes: Predictions) -> Tensor:
    """At most :data:`LISTED` of the positions ``at``: what changed most, then few neighbours, then node numbers."""
    for key in (nodes.nodes, nodes.degree, -gain.abs()):  # the last key weighs most, as each sort is stable
        at = at[key[at].argsort(stable=True)]
    return at[:LISTED]


def _label(value: Tensor, task: Task) -> str:
    """A class, the numbers of the labels that are set, or the outputs."""
    if task == "multiclass":
        return str(int(value))
    if task == "multilabel":
        parts = [str(i) for i in (value > 0.5).nonzero().squeeze(-1).tolist()]
    else:
        parts = [f"{v:.4g}" for v in value.tolist()]
    more = " …" if len(parts) > _MOST_OUTPUTS else ""
    return " ".join(parts[:_MOST_OUTPUTS]) + more or "none"


def _confusion(labels: Tensor, was: Tensor, now: Tensor) -> dict[str, Any]:
    """Counts by true class (rows) and predicted class (columns); what is rarer than the most common is ``other``."""
    classes, sizes = torch.unique(torch.cat([labels, was, now]), return_counts=True)
    shown = classes
    if classes.numel() > _MOST_CLASSES:
        shown = classes[sizes.argsort(descending=True, stable=True)[: _MOST_CLASSES - 1]].sort().values
    place = torch.full((int(classes.max()) + 1,), shown.numel())  # everything else comes last
    place[shown] = torch.arange(shown.numel())
    count = shown.numel() + int(shown.numel() < classes.numel())

    def matrix(predicted: Tensor) -> list[list[int]]:
        cells = torch.bincount(place[labels] * count + place[predicted], minlength=count * count)
        rows: list[list[int]] = cells.view(count, count).tolist()
        return rows

    names = [str(c) for c in shown.tolist()] + ["other"] * (count - shown.numel())
    return {"classes": names, "folded": classes.numel() - shown.numel(), "before": matrix(was), "after": matrix(now)}


def _by_label(truth: Tensor, was: Tensor, now: Tensor) -> dict[str, Any]:
    """For the labels that changed most: hits, false alarms and misses, before and after; inputs are ``[M, L]`` bool."""

    def counts(predicted: Tensor, label: int) -> list[int]:
        said, true = predicted[:, label], truth[:, label]
        return [int((said & true).sum()), int((said & ~true).sum()), int((~said & true).sum())]

    changed = (was != now).sum(0)
    first = sorted(changed.argsort(descending=True, stable=True)[:_MOST_LABELS].tolist())
    rows = [{"label": i, "before": counts(was, i), "after": counts(now, i)} for i in first]
    return {"total": truth.size(1), "rows": rows}
