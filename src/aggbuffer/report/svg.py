"""Line charts as inline SVG: enough for a report, and nothing that needs a network or a plotting library."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from html import escape

_RIGHT, _TOP, _BOTTOM = 16.0, 14.0, 42.0
_LEFT, _CHARACTER = 46.0, 8.0  # room for what is beside the y axis: at least, and for each character
_MOST_POINTS = 400  # more than a screen can show only make the page heavy


@dataclass(frozen=True)
class Line:
    """One curve.

    Attributes:
        kind: Its class in the page's style sheet, such as ``"before"``.
        xs: Where its points are.
        ys: Their heights; NaN leaves a gap.
        spread: Half the height of a band around each point, if there is one. The y axis takes no notice of it.
        dots: Whether each point is marked.
        below: Whether heights are written below the points, for a line that should make room for another, or above.
        band: Lower and upper end of a band around each point, for one that is not even or must be on the y axis.
        told: The xs of marked points whose height is written beside them; None for all.
    """

    kind: str
    xs: Sequence[float]
    ys: Sequence[float]
    spread: Sequence[float] = ()
    dots: bool = False
    below: bool = False
    band: Sequence[tuple[float, float]] = ()
    told: Collection[float] | None = None


@dataclass(frozen=True)
class Chart:
    """A line chart.

    Attributes:
        name: Unique within the page.
        title: What it shows, for those who cannot see it.
        description: What is to be seen, likewise.
        lines: The curves, first one at the back.
        x_label: Beneath the x axis.
        x_ticks: Where to write what below the axis.
        percent: Whether heights are shares.
        x_notes: What to write in a second line there.
        mark: An x worth a vertical line, and what to write there.
        reverse: Whether x grows from right to left.
        padding: Room left and right of the outermost points, in units of x.
        heights: Heights that must be on the y axis, so that two charts can share one.
        cursor: An x for a vertical line that a script may move along the points of the first curve.
    """

    name: str
    title: str
    description: str
    lines: Sequence[Line]
    x_label: str
    x_ticks: Sequence[tuple[float, str]]
    percent: bool = False
    x_notes: Sequence[tuple[float, str]] = ()
    mark: tuple[float, str] | None = None
    reverse: bool = False
    padding: float = 0.0
    heights: Sequence[float] = ()
    cursor: float | None = None

    def svg(self, width: float, height: float) -> str:
        """The chart in a box of ``width`` x ``height``; text keeps its size, so make one for each kind of screen."""
        return _Drawing(self, width, height).render()


def epoch_ticks(last: int, most: int = 5) -> list[tuple[float, str]]:
    """Round epochs from 0 to ``last``."""
    step = _nice_step(max(last, 1) / most)
    return [(x, f"{x:g}") for x in _multiples(0, max(last, 1), max(step, 1.0))]


def thin(xs: Sequence[float], ys: Sequence[float]) -> tuple[list[float], list[float]]:
    """Every n-th point and the last one, so that no curve has more than a screen can show."""
    step = max(1, math.ceil(len(xs) / _MOST_POINTS))
    at = sorted({*range(0, len(xs), step), *([len(xs) - 1] if xs else [])})
    return [xs[i] for i in at], [ys[i] for i in at]


@dataclass
class _Drawing:
    chart: Chart
    width: float
    height: float
    parts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        xs = [x for line in self.chart.lines for x in line.xs] + [x for x, _ in self.chart.x_ticks]
        self.x_low, self.x_high = min(xs) - self.chart.padding, max(xs) + self.chart.padding
        self.ticks = _height_ticks(self.chart, most=5 if self.height > 200 else 4)
        self.y_low, self.y_high = self.ticks[0], self.ticks[-1]
        self.left = max(_LEFT, 10 + _CHARACTER * max(len(self._height(tick)) for tick in self.ticks))
        self.below = _BOTTOM + (16 if self.chart.x_notes else 0)

    def x(self, value: float) -> float:
        share = (value - self.x_low) / ((self.x_high - self.x_low) or 1)
        share = 1 - share if self.chart.reverse else share
        return self.left + share * (self.width - self.left - _RIGHT)

    def y(self, value: float) -> float:
        share = (value - self.y_low) / (self.y_high - self.y_low)
        return self.height - self.below - share * (self.height - _TOP - self.below)

    def render(self) -> str:
        chart, name = self.chart, f"{self.chart.name}-{self.width:g}"
        self._axes()
        if chart.mark:
            self._mark(*chart.mark)
        if chart.cursor is not None:
            self._cursor(chart.cursor)
        for line in chart.lines:
            self._line(line)
        return (
            f'<svg role="img" aria-labelledby="{name}-title {name}-desc" viewBox="0 0 {self.width:g} {self.height:g}">'
            f'<title id="{name}-title">{escape(chart.title)}</title>'
            f'<desc id="{name}-desc">{escape(chart.description)}</desc>{"".join(self.parts)}</svg>'
        )

    def _axes(self) -> None:
        right, bottom = self.width - _RIGHT, self.height - self.below
        for value in self.ticks:
            y = self.y(value)
            self.parts.append(f'<line class="grid" x1="{self.left:g}" y1="{y:.1f}" x2="{right:g}" y2="{y:.1f}"/>')
            self._text(self.left - 8, y + 4, self._height(value), "end")
        for value, told in self.chart.x_ticks:
            self._text(self.x(value), bottom + 18, told, "middle")
        for value, told in self.chart.x_notes:
            self._text(self.x(value), bottom + 33, told, "middle", "note")
        self._text((self.left + right) / 2, self.height - 6, self.chart.x_label, "middle", "label")

    def _height(self, value: float) -> str:
        """What is written beside the y axis."""
        return f"{100 * value:.4g} %" if self.chart.percent else f"{value:.4g}"

    def _mark(self, x: float, told: str) -> None:
        at = self.x(x)
        self.parts.append(
            f'<line class="mark" x1="{at:.1f}" y1="{_TOP:g}" x2="{at:.1f}" y2="{self.height - self.below:g}"/>'
        )
        left_half = at < self.width / 2
        self._text(at + (6 if left_half else -6), _TOP + 10, told, "start" if left_half else "end", "marked")

    def _cursor(self, x: float) -> None:
        at, places = self.x(x), " ".join(f"{self.x(place):.1f}" for place in self.chart.lines[0].xs)
        self.parts.append(
            f'<line class="cursor" data-xs="{places}" x1="{at:.1f}" y1="{_TOP:g}" x2="{at:.1f}" '
            f'y2="{self.height - self.below:g}"/>'
        )

    def _line(self, line: Line) -> None:
        points = [(self.x(x), self.y(y)) for x, y in zip(line.xs, line.ys, strict=True) if math.isfinite(y)]
        if band := line.band or [(y - half, y + half) for y, half in zip(line.ys, line.spread, strict=False)]:
            upper = [(self.x(x), self.y(high)) for x, (_, high) in zip(line.xs, band, strict=True)]
            lower = [(self.x(x), self.y(low)) for x, (low, _) in zip(line.xs, band, strict=True)]
            self.parts.append(f'<polygon class="band {line.kind}" points="{_path([*upper, *reversed(lower)])}"/>')
        self.parts.append(f'<polyline class="curve {line.kind}" points="{_path(points)}"/>')
        if not line.dots:
            return
        marked = [(x, y) for x, y in zip(line.xs, line.ys, strict=True) if math.isfinite(y)]
        for (x, y), (place, value) in zip(points, marked, strict=True):
            self.parts.append(f'<circle class="dot {line.kind}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>')
            if line.told is not None and place not in line.told:
                continue
            inner = min(max(x, self.left + 14), self.width - _RIGHT - 12)
            told = f"{100 * value:.1f}" if self.chart.percent else f"{value:.3g}"
            self._text(inner, y + (18 if line.below else -9), told, "middle", f"value {line.kind}")

    def _text(self, x: float, y: float, told: str, anchor: str, kind: str = "tick") -> None:
        self.parts.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(told)}</text>')


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _height_ticks(chart: Chart, most: int) -> list[float]:
    """Round heights around all curves, with a little room above and below for what is written beside the points."""
    ends = [end for line in chart.lines for pair in line.band for end in pair]
    curves = [y for line in chart.lines for y in line.ys]
    heights = [y for y in (*curves, *ends, *chart.heights) if math.isfinite(y)] or [0.0, 1.0]
    low, high = min(heights), max(heights)
    written = any(line.dots and (line.told is None or line.told) for line in chart.lines)
    room = 0.12 * (high - low) if written else 0.0
    low, high = low - room, high + room
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    step = _nice_step((high - low) / most)
    ticks = _multiples(math.floor(low / step) * step, math.ceil(high / step) * step, step)
    if chart.percent and max(heights) <= 1 + 1e-9:  # no share is above 100 % or below 0
        ticks = [tick for tick in ticks if -1e-9 <= tick <= 1 + 1e-9]
    return ticks


def _nice_step(step: float) -> float:
    """The next of 1, 2, 5, 10, … times a power of ten."""
    magnitude = 10.0 ** math.floor(math.log10(step))
    return next(nice * magnitude for nice in (1, 2, 5, 10) if nice * magnitude >= step * (1 - 1e-9))


def _multiples(low: float, high: float, step: float) -> list[float]:
    return [round(low + i * step, 10) for i in range(round((high - low) / step) + 1)]
