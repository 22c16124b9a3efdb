"""The charts of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from aggbuffer.report.svg import Chart, Line, epoch_ticks, thin
from aggbuffer.report.told import Told, share

# Text in an SVG shrinks with it, so a phone gets a chart of its own.
_WIDE, _NARROW = 720, 350
_MONITORS = {
    "val_loss": "Validation loss",
    "val_accuracy": "Validation accuracy",
    "rc_loss": "Loss on held-out nodes",
}


@dataclass(frozen=True)
class Figure:
    """A chart for wide and for narrow screens, and what names its lines.

    Attributes:
        title: Above the chart.
        wide: Inline SVG.
        narrow: Inline SVG.
        legend: Class and name of each line.
    """

    title: str
    wide: Markup
    narrow: Markup
    legend: Sequence[tuple[str, str]]

    @classmethod
    def of(cls, chart: Chart, legend: Sequence[tuple[str, str]], heights: tuple[float, float]) -> Figure:
        wide, narrow = chart.svg(_WIDE, heights[0]), chart.svg(_NARROW, heights[1])
        return cls(chart.title, Markup(wide), Markup(narrow), legend)


def removal_chart(rows: Sequence[Told]) -> Figure:
    """Scores before and after as edges go."""
    kept = [row.kept or 0.0 for row in rows]
    percent = rows[0].measure == "accuracy"
    told = "; ".join(f"at {share(row.kept, 0)} of the edges {row.was} before and {row.now} after" for row in rows)
    higher_before = rows[-1].before > rows[-1].after
    chart = Chart(
        name="removal",
        title=f"{'Accuracy' if percent else 'RMSE'} as edges are removed",
        description=f"Two lines over the share of edges kept: {told}.",
        lines=[
            Line("before", kept, [r.before for r in rows], [r.spread[0] for r in rows], True, below=not higher_before),
            Line("after", kept, [r.after for r in rows], [r.spread[1] for r in rows], True, below=higher_before),
        ],
        x_label="Share of edges kept",
        x_ticks=[(row, share(row, 0)) for row in kept],
        percent=percent,
        reverse=True,
    )
    return Figure.of(chart, [("before", "Base GNN"), ("after", "With buffer")], (340, 300))


def training_charts(fit: Mapping[str, Any]) -> list[Figure]:
    """What training was stopped on, and the two terms of its loss."""
    history = fit["history"]
    if not history:
        return []
    monitor = fit["monitor"]
    epochs = [record["epoch"] for record in history]
    scores = [record[monitor if monitor != "rc_loss" else "score"] for record in history]
    mark = (float(fit["best_epoch"]), f"kept: epoch {fit['best_epoch']}")
    stopped_on = Chart(
        name="monitor",
        title=_MONITORS[monitor],
        description=f"{_MONITORS[monitor]} over {len(epochs)} epochs; the state of epoch {fit['best_epoch']} is kept.",
        lines=[Line("after", *thin(epochs, scores))],
        x_label="Epoch",
        x_ticks=epoch_ticks(epochs[-1]),
        percent=monitor == "val_accuracy",
        mark=mark,
    )
    terms = Chart(
        name="terms",
        title="The two terms of the loss",
        description=f"Bias from {history[0]['bias']:.3g} to {history[-1]['bias']:.3g} and robustness from "
        f"{history[0]['robust']:.3g} to {history[-1]['robust']:.3g}.",
        lines=[
            Line("before", *thin(epochs, [record["bias"] for record in history])),
            Line("after", *thin(epochs, [record["robust"] for record in history])),
        ],
        x_label="Epoch",
        x_ticks=epoch_ticks(epochs[-1]),
        mark=mark,
    )
    heights = (230, 220)
    return [
        Figure.of(stopped_on, [], heights),
        Figure.of(
            terms, [("before", "Bias: drift from the base"), ("after", "Robustness: drift as edges go")], (230, 220)
        ),
    ]
