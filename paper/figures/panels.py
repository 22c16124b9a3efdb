"""Line charts side by side in one self-contained SVG, with bands from the least to the most of all runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from aggbuffer.report.svg import Chart, Line
from paper.readme_figure import STYLE
from paper.statistics import mean

WIDTH, HEIGHT, HEAD = 340.0, 230.0, 46.0

# The chart finds its heights from curves alone, so a band's edges are curves that are not drawn.
_HIDDEN = ".curve.hidden { stroke: none } .mean { fill: none } .legend { font-size: 13px; font-weight: 600 }"


@dataclass(frozen=True)
class Panel:
    """One chart and what is written above it."""

    heading: str
    chart: Chart


def band(kind: str, xs: Sequence[float], runs: Sequence[Sequence[float]]) -> list[Line]:
    """The mean of several runs and a band from the least to the most, as lines of a chart.

    Args:
        kind: Class of the curve in the style sheet.
        xs: Where all runs have their points, ``[T]``.
        runs: Their heights, each ``[T]``.
    """
    columns = list(zip(*runs, strict=True))
    low, high = [min(c) for c in columns], [max(c) for c in columns]
    middle, half = (
        [(a + b) / 2 for a, b in zip(low, high, strict=True)],
        [(b - a) / 2 for a, b in zip(low, high, strict=True)],
    )
    return [
        Line(f"hidden {kind}", xs, middle, half),
        Line("hidden", xs, low),
        Line("hidden", xs, high),
        Line(kind, xs, [mean(c) for c in columns]),
    ]


def side_by_side(title: str, panels: Sequence[Panel], legend: Sequence[tuple[str, str]], columns: int) -> str:
    """Panels in rows below a legend of (kind, words)."""
    rows = -(-len(panels) // columns)
    width, height = columns * WIDTH, HEAD + rows * (HEIGHT + 24)
    parts = []
    for i, (kind, told) in enumerate(legend):
        parts.append(f'<text class="legend name {kind}" x="{46 + i * width / 2:g}" y="20">{escape(told)}</text>')
    for i, panel in enumerate(panels):
        x, y = (i % columns) * WIDTH, HEAD + (i // columns) * (HEIGHT + 24)
        inner = panel.chart.svg(WIDTH, HEIGHT)
        parts.append(f'<text class="label" x="{x + 46:g}" y="{y:g}">{escape(panel.heading)}</text>')
        parts.append(inner.replace("<svg ", f'<svg x="{x:g}" y="{y + 4:g}" width="{WIDTH:g}" height="{HEIGHT:g}" ', 1))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width:g} {height:g}">'
        f"<title>{escape(title)}</title><style>{STYLE}{_HIDDEN}</style>{''.join(parts)}</svg>"
    )
