"""The evaluation before and after a fit, and everything about it that the report tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import nn
from torch_geometric.data import Data

from aggbuffer.compare import Comparison, compare
from aggbuffer.config import TaskName
from aggbuffer.evaluate import Evaluation, Predictions, evaluate, removal_name
from aggbuffer.model import BufferedGNN
from aggbuffer.report.bins import binned
from aggbuffer.report.flips import flips
from aggbuffer.report.intervals import scored
from aggbuffer.scores import quality
from aggbuffer.targets import Task

REPEATS = 3


@dataclass(frozen=True)
class Judgement:
    """What came of the evaluation.

    Attributes:
        comparison: Before and after; None where nothing could be evaluated.
        shares: Shares of edges kept that were evaluated.
        told: The parts of the record that need labels, as JSON-ready values.
    """

    comparison: Comparison | None
    shares: Sequence[float] = ()
    told: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Judged:
    """A base that was evaluated and is about to get its buffers.

    Attributes:
        base: Its evaluation; None where the graph has no labels or no ``test_mask``.
        missing: Then, why.
        shares: Shares of edges to keep.
        kept: The one among them that the user expects in use.
        task: What the labels are, if the user said so.
    """

    base: Evaluation | None
    missing: str
    shares: Sequence[float]
    kept: float
    task: TaskName

    @classmethod
    def before(cls, gnn: nn.Module, data: Data, shares: Sequence[float], kept: float, task: TaskName) -> Self:
        """Evaluate the base on ``data.test_mask``, if that can be done."""
        lacks = [told for name, told in (("y", "labels"), ("test_mask", "test_mask")) if data.get(name) is None]
        missing = f"The graph has no {' and no '.join(lacks)}, so it has no labelled test nodes to be judged on."
        base = None if lacks else evaluate(gnn, data, keep=shares, task=task, repeats=REPEATS)
        return cls(base, missing, shares, kept, task)

    def after(self, model: BufferedGNN, data: Data) -> Judgement:
        """Evaluate the model with its buffers in the same way, and compare."""
        if self.base is None:
            nothing = {"missing": self.missing}
            return Judgement(
                None, (), {"comparison": None, "bins": nothing, "flips": nothing, "unlabelled": self.missing}
            )
        buffered = evaluate(model, data, keep=self.shares, task=self.task, repeats=REPEATS)
        comparison = compare(self.base, buffered)
        old, new, task = self.base.predictions, buffered.predictions, self.base.task
        told = {
            "comparison": _compared(comparison, self.base, buffered, self.shares),
            "bins": binned(old, new, task, self.kept, level=comparison.level),
            "flips": flips(old, new, task, self.kept),
        }
        return Judgement(comparison, self.shares, told)


def _compared(
    comparison: Comparison, base: Evaluation, buffered: Evaluation, shares: Sequence[float]
) -> dict[str, Any]:
    """The comparison, with the share of edges kept where a row has one, and every score's own interval."""
    told = comparison.to_dict()
    kept = {removal_name(share): share for share in shares}
    for row in told["differences"]:
        row["kept"] = kept.get(row["name"])
        for side, evaluation in (("before", base), ("after", buffered)):
            row[side] |= _interval(evaluation.predictions, row["name"], row["kept"], comparison.task)
    return told | {"repeats": REPEATS, "resamples": 1000}


def _interval(said: Predictions, name: str, kept: float | None, task: Task) -> dict[str, float]:
    if kept is not None:
        per_node = torch.stack([quality(run, said.labels, task) for run in said.removed[kept]]).mean(0)
    else:
        at = said.groups[name]
        per_node = quality(said.full[at], said.labels[at], task)
    found = scored(per_node, task)
    return {"low": found["low"], "high": found["high"]}
