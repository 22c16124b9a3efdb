"""Scores before and after in bins of degree and of the neighbours' agreement."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from aggbuffer.evaluate import Predictions
from aggbuffer.report.intervals import scored
from aggbuffer.scores import paired_bootstrap, quality
from aggbuffer.targets import Task

Bins = list[tuple[str, Tensor]]

MOST_BINS = 7  # more do not fit beside each other on a phone
_FEWEST_NODES = 10


def binned(before: Predictions, after: Predictions, task: Task, kept: float, *, level: float) -> dict[str, Any]:
    """Scores by degree and by agreement, on the full graph and with a share ``kept`` of its edges.

    Args:
        before: What the base said.
        after: What the model with buffers said of the same nodes.
        task: What the labels are.
        kept: A share of edges that both were evaluated at.
        level: Coverage of the intervals of what changed.
    """
    full = (before.full[None], after.full[None])
    less = (before.removed[kept], after.removed[kept])

    def told(bins: Bins) -> dict[str, Any]:
        rows = []
        for label, at in bins:
            row: dict[str, Any] = {"label": label, "count": at.numel()}
            for name, (was, now) in (("full", full), ("less", less)):
                row[name] = _change(was[:, at], now[:, at], before.labels[at], task, level)
            rows.append(row)
        return {"bins": rows}

    by_degree = told(degree_bins(before.degree))
    known = ~before.agreement.isnan()
    if task != "multiclass":
        return {"degree": by_degree, "agreement": {"missing": "Neighbours agree or differ in classes only."}}
    if not bool(known.any()):
        return {"degree": by_degree, "agreement": {"missing": "No test node has a neighbour with a known label."}}
    left_out = int((~known).sum())
    return {"degree": by_degree, "agreement": {**told(agreement_bins(before.agreement)), "left_out": left_out}}


def _change(was: Tensor, now: Tensor, labels: Tensor, task: Task, level: float) -> dict[str, Any]:
    """One bin before and after; predictions are ``[R, M]`` or ``[R, M, L]``."""
    sides = [torch.stack([quality(run, labels, task) for run in runs]).mean(0) for runs in (was, now)]
    change, _ = paired_bootstrap(was, now, labels, task, resamples=1000, level=level, seed=0)
    return {
        "before": scored(sides[0], task),
        "after": scored(sides[1], task),
        "change": {"difference": change.difference, "low": change.low, "high": change.high},
    }


def degree_bins(degree: Tensor, most: int = MOST_BINS) -> Bins:
    """Positions of nodes by degree: 0, 1, 2, 3 to 4, 5 to 8, and so on; small bins join the next.

    Args:
        degree: ``[M]``.
        most: How many bins there may be.
    """
    whole = degree.round().long()
    smallest = max(_FEWEST_NODES, math.ceil(0.02 * whole.numel()))
    edges = [0, 1, 2, *(2**k for k in range(2, 63))]  # each bin's highest degree
    found: list[tuple[int, int, Tensor]] = []
    low = 0
    for high in edges:
        at = ((whole >= low) & (whole <= high)).nonzero().squeeze(-1)
        last = int(whole.max()) <= high
        if at.numel() >= smallest or (last and not found):
            found.append((low, high, at))
            low = high + 1
        elif last and at.numel():  # too few for a bin of their own
            start, _, members = found.pop()
            found.append((start, high, torch.cat([members, at])))
        if last:
            break
    while len(found) > most:  # the last ones together: hubs are few
        (start, _, some), (_, high, others) = found[-2:]
        found[-2:] = [(start, high, torch.cat([some, others]))]
    return [(_range(low, high, i == len(found) - 1 and i > 0), at) for i, (low, high, at) in enumerate(found)]


def _range(low: int, high: int, is_last: bool) -> str:
    if is_last:
        return f"{low}+"
    return str(low) if low == high else f"{low}–{high}"


def agreement_bins(agreement: Tensor) -> Bins:
    """Positions of nodes by the percentage of neighbours with their own label; without neighbours they are in none.

    Args:
        agreement: ``[M]``, NaN where a node has no neighbours.
    """
    bins = [("0", (agreement == 0).nonzero().squeeze(-1))]
    for low, label in ((0.0, "1–25"), (0.25, "26–50"), (0.5, "51–75"), (0.75, "76–99")):
        inside = (agreement > low) & (agreement <= low + 0.25) & (agreement < 1)
        bins.append((label, inside.nonzero().squeeze(-1)))
    bins.append(("100", (agreement == 1).nonzero().squeeze(-1)))
    return [(label, at) for label, at in bins if at.numel()]
