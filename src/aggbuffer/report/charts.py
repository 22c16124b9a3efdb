"""The charts of the report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from aggbuffer.report.svg import Chart, Line, epoch_ticks, thin
from aggbuffer.report.told import Told, gone, share

# Text in an SVG shrinks with it, so a phone gets a chart of its own.
_WIDE, _NARROW = 720, 350
_QUARTERS = (1.0, 0.75, 0.5, 0.25, 0.0)
_MONITORS = {
    "val_loss": "Validation loss",
    "val_accuracy": "Validation accuracy",
    "rc_loss": "Loss on held-out nodes",
}
BEFORE_AFTER = (("before", "Base GNN"), ("after", "With buffer"))


@dataclass(frozen=True)
class Figure:
    """A chart for wide and for narrow screens, and what names its lines.

    Attributes:
        title: Above the chart.
        wide: Inline SVG; None for a chart that stays small everywhere.
        narrow: Inline SVG.
        legend: Class and name of each line.
    """

    title: str
    wide: Markup | None
    narrow: Markup
    legend: Sequence[tuple[str, str]] = ()

    @classmethod
    def of(cls, chart: Chart, legend: Sequence[tuple[str, str]], heights: tuple[float, float]) -> Figure:
        wide, narrow = chart.svg(_WIDE, heights[0]), chart.svg(_NARROW, heights[1])
        return cls(chart.title, Markup(wide), Markup(narrow), legend)

    @classmethod
    def small(cls, chart: Chart, legend: Sequence[tuple[str, str]] = ()) -> Figure:
        return cls(chart.title, None, Markup(chart.svg(_NARROW, 220)), legend)


def removal_chart(rows: Sequence[Told], kept: float, prefix: str = "") -> Figure:
    """Scores before and after as edges go, with a line at the share that the user expects."""
    percent = rows[0].measure == "accuracy"
    told = "; ".join(f"at {share(row.kept, 0)} of the edges {row.was} before and {row.now} after" for row in rows)
    higher_before = rows[-1].before > rows[-1].after
    chart = Chart(
        name=f"{prefix}removal",
        title=f"{rows[0].measure_name} as edges are removed",
        description=f"Two lines over the share of edges kept: {told}.",
        lines=[_removal(rows, "before", 0, below=not higher_before), _removal(rows, "after", 1, below=higher_before)],
        x_label="Share of edges kept",
        x_ticks=[(place, share(place, 0)) for place in _QUARTERS],
        percent=percent,
        reverse=True,
        cursor=kept,
    )
    return Figure.of(chart, BEFORE_AFTER, (340, 300))


def _removal(rows: Sequence[Told], kind: str, side: int, *, below: bool) -> Line:
    places = [row.kept or 0.0 for row in rows]
    heights, band = [(row.before, row.after)[side] for row in rows], [row.bands[side] for row in rows]
    return Line(kind, places, heights, dots=True, below=below, band=band, told=_QUARTERS)


def overlay(runs: Sequence[tuple[int, str, Sequence[Told]]]) -> Figure:
    """The removal curves of several runs over each other, before (dashed) and after.

    Args:
        runs: Number of its colour, name and rows of each; all of one measure.
    """
    lines, legend, told = [], [], []
    for number, name, rows in runs:
        places = [row.kept or 0.0 for row in rows]
        lines.append(Line(f"run{number} was", places, [row.before for row in rows]))
        lines.append(Line(f"run{number}", places, [row.after for row in rows], dots=True, told=()))
        legend.append((f"run{number}", name))
        told.append(f"{name}: " + ", ".join(f"{share(r.kept, 0)} {r.was} to {r.now}" for r in rows))
    measure = runs[0][2][0]
    chart = Chart(
        name=f"overlay-{measure.measure}",
        title=f"{measure.measure_name} as edges are removed",
        description="Dashed lines before, solid lines after. " + "; ".join(told) + ".",
        lines=lines,
        x_label="Share of edges kept",
        x_ticks=[(place, share(place, 0)) for place in _QUARTERS],
        percent=measure.measure == "accuracy",
        reverse=True,
    )
    return Figure.of(chart, legend, (360, 320))


def bin_charts(name: str, label: str, sides: Sequence[tuple[float, Sequence[Told]]]) -> list[Figure]:
    """Scores before and after by bin, one chart for each share of edges kept, all with the same y axis.

    Args:
        name: Unique within the page.
        label: What the bins are of.
        sides: Share of edges kept, and one line of scores for each bin.
    """
    heights = [end for _, rows in sides for row in rows for band in row.bands for end in band]
    figures = []
    for kept, rows in sides:
        places = [float(i) for i in range(len(rows))]
        told = "; ".join(f"{row.name}: {row.was} before, {row.now} after, {row.count} nodes" for row in rows)
        chart = Chart(
            name=f"{name}-{kept:g}",
            title=f"With {gone(kept)}",
            description=f"{rows[0].measure_name} by bin. {told}.",
            lines=[
                _binned("before", places, rows, 0),
                _binned("after", places, rows, 1),
            ],
            x_label=label,
            x_ticks=[(place, row.name) for place, row in zip(places, rows, strict=True)],
            x_notes=[(place, f"n={row.count:,}") for place, row in zip(places, rows, strict=True)],
            percent=rows[0].measure == "accuracy",
            padding=0.35,
            heights=[min(heights), max(heights)],
        )
        figures.append(Figure.small(chart))
    return figures


def _binned(kind: str, places: Sequence[float], rows: Sequence[Told], side: int) -> Line:
    heights = [(row.before, row.after)[side] for row in rows]
    return Line(kind, places, heights, dots=True, band=[row.bands[side] for row in rows], told=())


def term_charts(terms: Mapping[str, Any], prefix: str = "") -> list[Figure]:
    """For each layer, the norm of the buffer's term as a share of the aggregation's, by degree."""
    bins = terms["bins"]
    places = [float(i) for i in range(len(bins))]
    figures = []
    for number, layer in enumerate(terms["layers"]):
        full = [ratio(told) for told in layer["full"]]
        lines = [Line("after", places, full, dots=True, told=())]
        if layer["less"] is not None:
            lines.insert(0, Line("less", places, [ratio(told) for told in layer["less"]], dots=True, told=()))
        values = ", ".join(f"{b['label']}: {share(_known(r), 0)}" for b, r in zip(bins, full, strict=True))
        chart = Chart(
            name=f"{prefix}term-{number}",
            title=f"{layer['name'] or 'the model'}",
            description=f"Norm of the term over norm of the aggregation by degree, every edge in place: {values}.",
            lines=lines,
            x_label="Number of neighbours",
            x_ticks=[(place, b["label"]) for place, b in zip(places, bins, strict=True)],
            percent=True,
            padding=0.35,
            heights=[0.0],
        )
        figures.append(Figure.small(chart))
    return figures


def ratio(told: Mapping[str, Any]) -> float:
    """Term over aggregation; NaN where there is no aggregation to compare with."""
    return told["term"] / told["aggregation"] if told["aggregation"] else math.nan


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def training_charts(fit: Mapping[str, Any], prefix: str = "") -> list[Figure]:
    """What training was stopped on, then the two terms of its loss; nothing where there were no epochs."""
    history = fit["history"]
    if not history:
        return []
    monitor, kept = fit["monitor"], fit["best_epoch"]

    def chart(name: str, title: str, key: str, kind: str) -> Chart:
        values = [math.nan if record[key] is None else record[key] for record in history]
        return Chart(
            name=f"{prefix}{name}",
            title=title,
            description=f"From {values[0]:.3g} to {values[-1]:.3g} in {len(values)} epochs; epoch {kept} is kept.",
            lines=[Line(kind, *thin([record["epoch"] for record in history], values))],
            x_label="Epoch",
            x_ticks=epoch_ticks(history[-1]["epoch"]),
            percent=key == "val_accuracy",
            mark=(float(kept), f"kept: epoch {kept}"),
        )

    stopped_on = chart("monitor", _MONITORS[monitor], "score" if monitor == "rc_loss" else monitor, "after")
    bias = chart("bias", "Bias: drift from the base", "bias", "plain")
    robust = chart("robust", "Robustness: drift as edges go", "robust", "plain")
    return [Figure.of(stopped_on, (), (230, 220)), Figure.small(bias), Figure.small(robust)]
