"""Two evaluations of the same nodes, side by side, with paired intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from aggbuffer.config import check_integer
from aggbuffer.errors import ConfigError
from aggbuffer.evaluate import Evaluation, plain, removal_name
from aggbuffer.scores import Interval, Score, paired_bootstrap
from aggbuffer.targets import Task
from aggbuffer.text import html_table, markdown_table, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Difference:
    """One line of a comparison: a score before and after, and the intervals of what changed."""

    name: str
    before: Score
    after: Score
    accuracy: Interval
    macro_f1: Interval


@dataclass(frozen=True)
class Comparison:
    """Two evaluations of the same nodes, side by side.

    Attributes:
        differences: One for each group and each share of edges kept.
        task: What the labels are.
        level: Coverage of the intervals.
    """

    differences: list[Difference]
    task: Task
    level: float

    def __getitem__(self, name: str) -> Difference:
        for difference in self.differences:
            if difference.name == name:
                return difference
        raise KeyError(f"{name!r}; there are {', '.join(d.name for d in self.differences)}")

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON-ready values."""
        rows = [
            {
                "name": d.name,
                "before": plain(d.before),
                "after": plain(d.after),
                "accuracy": _plain_interval(d.accuracy),
                "macro_f1": _plain_interval(d.macro_f1),
            }
            for d in self.differences
        ]
        return {"task": self.task, "level": self.level, "differences": rows}

    def to_markdown(self) -> str:
        """The comparison as a markdown table."""
        return markdown_table(*self._table())

    def _repr_html_(self) -> str:
        from aggbuffer.plots import inline

        picture = inline(self.plot, "Scores before and after, by group and as edges are removed")
        return f"<div>{html_table(*self._table())}{picture}</div>"

    def __str__(self) -> str:
        return self.to_markdown()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw both sides and the intervals of the gain, on ``ax`` or on axes of its own; needs matplotlib."""
        from aggbuffer.plots import plot_comparison

        return plot_comparison(self, ax)

    def _table(self) -> tuple[list[str], list[list[str]]]:
        interval = f"{percent(self.level)} interval"
        if self.task == "regression":
            headers = ["nodes", "before (RMSE)", "after", "change in -MSE", interval, "count"]
            rows = [
                [d.name, f"{d.before.rmse:.4f}", f"{d.after.rmse:.4f}", *_told(d.accuracy, 1, 4), str(d.before.count)]
                for d in self.differences
            ]
        else:
            headers = ["nodes", "before", "after", "points", interval, "count"]
            rows = [
                [
                    d.name,
                    percent(d.before.accuracy, 2),
                    percent(d.after.accuracy, 2),
                    *_told(d.accuracy, 100, 2),
                    str(d.before.count),
                ]
                for d in self.differences
            ]
        return headers, rows


def compare(
    before: Evaluation, after: Evaluation, *, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> Comparison:
    """Paired differences of two evaluations, with bootstrap intervals over nodes.

    Args:
        before: Usually of the base.
        after: Usually of the model with buffers, evaluated with the same mask, shares and seed.
        resamples: Bootstrap samples.
        level: Coverage of the intervals.
        seed: Of the resampling.
    """
    check_integer("resamples", resamples, 1)
    check_integer("seed", seed, 0)
    if not 0 < level < 1:
        raise ConfigError(f"level must be in (0, 1) (got {level}).")
    _check_comparable(before, after)
    old, new = before.predictions, after.predictions
    pairs = [(name, old.full[at][None], new.full[at][None], old.labels[at]) for name, at in old.groups.items()]
    pairs += [(removal_name(share), runs, new.removed[share], old.labels) for share, runs in old.removed.items()]
    scores = zip(before.rows(), after.rows(), strict=True)
    differences = []
    for (name, was, now, labels), ((_, score_before), (_, score_after)) in zip(pairs, scores, strict=True):
        if score_before.count == 0:
            continue
        accuracy, f1 = paired_bootstrap(was, now, labels, before.task, resamples=resamples, level=level, seed=seed)
        differences.append(Difference(name, score_before, score_after, accuracy, f1))
    return Comparison(differences, before.task, level)


def _check_comparable(before: Evaluation, after: Evaluation) -> None:
    for name, value in (("before", before), ("after", after)):
        if not isinstance(value, Evaluation):
            raise ConfigError(f"{name} is a {type(value).__name__}; expected what aggbuffer.evaluate returns.")
    old, new = before.predictions, after.predictions
    same = (
        before.task == after.task
        and torch.equal(old.nodes, new.nodes)
        and torch.equal(old.labels, new.labels)
        and list(old.removed) == list(new.removed)
        and all(old.removed[s].size(0) == new.removed[s].size(0) for s in old.removed)
        and all(torch.equal(old.groups[g], new.groups[g]) for g in old.groups)
    )
    if not same:
        raise ConfigError(
            "The two evaluations differ in nodes, labels, shares of edges, repeats or seed; evaluate both in the same "
            "way."
        )


def _plain_interval(interval: Interval) -> dict[str, float | None]:
    values = {"difference": interval.difference, "low": interval.low, "high": interval.high}
    return {key: None if math.isnan(value) else value for key, value in values.items()}


def _told(interval: Interval, scale: float, digits: int) -> list[str]:
    low, high = f"{scale * interval.low:+.{digits}f}", f"{scale * interval.high:+.{digits}f}"
    return [f"{scale * interval.difference:+.{digits}f}", f"{low} to {high}"]
