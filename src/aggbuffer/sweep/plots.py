"""The plots of a search as inline SVG: each for wide and for narrow screens, as text in an SVG shrinks with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from markupsafe import Markup

from aggbuffer.report.svg import epoch_ticks

_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 16.0, 14.0, 42.0
_WIDE, _NARROW = 720.0, 350.0


@dataclass(frozen=True)
class Plot:
    """A plot in both sizes.

    Attributes:
        title: Above it.
        wide: Inline SVG.
        narrow: Inline SVG.
    """

    title: str
    wide: Markup
    narrow: Markup


@dataclass(frozen=True)
class Dot:
    """One trial in a plot.

    Attributes:
        x: Where.
        y: Its score, as it is told.
        kind: Its class in the style sheet.
        told: What a pointer over it shows.
    """

    x: float
    y: float
    kind: str
    told: str


@dataclass(frozen=True)
class Trace:
    """One trial in the plot of all settings.

    Attributes:
        heights: On each axis, from 0 at the bottom to 1.
        kind: Its class in the style sheet.
        told: What a pointer over it shows.
    """

    heights: Sequence[float]
    kind: str
    told: str


def history(dots: Sequence[Dot], best: Sequence[tuple[float, float]], base: float | None, score: Score) -> Plot:
    """Every trial's score in the order of trials, the best so far, and the base."""
    title = "Scores in the order of trials"

    def draw(width: float, height: float) -> str:
        heights = [dot.y for dot in dots if dot.kind != "pruned"] + ([] if base is None else [base])
        last = max(dot.x for dot in dots)
        frame = _Frame(width, height, (-0.5, last + 0.5), heights, score, "Trial")
        frame.axes(epoch_ticks(int(last)))
        if base is not None:
            frame.line([(frame.x_low, base), (frame.x_high, base)], "before")
        frame.line([*best, (frame.x_high, best[-1][1])], "after", steps=True)
        frame.dots(dots)
        return frame.svg("history", title, f"{len(dots)} trials; the best has {score.text(best[-1][1])}.")

    return _both(title, draw, (300, 280))


def effect(
    name: str,
    dots: Sequence[Dot],
    ticks: Sequence[tuple[float, str]],
    means: Sequence[tuple[float, float]],
    score: Score,
) -> Plot:
    """Scores over one setting, from 0 to 1, with the mean of each of its levels."""

    def draw(width: float, height: float) -> str:
        frame = _Frame(width, height, (-0.04, 1.04), [dot.y for dot in dots], score)
        frame.axes(ticks)
        frame.dots(dots)
        frame.line(means, "after")
        told = "; ".join(score.text(mean) for _, mean in means)
        return frame.svg(f"effect-{name}", f"{score.name} by {name}", f"Means from left to right: {told}.")

    return _both(name, draw, (220, 180))


def parallel(axes: Sequence[tuple[str, Sequence[tuple[float, str]]]], traces: Sequence[Trace]) -> Plot:
    """Every trial as a line through its settings to its score.

    Args:
        axes: Name of each, and where on it, from 0 to 1, to write what.
        traces: Those at the back first.
    """
    title = "Settings and score of every trial"

    def draw(width: float, height: float) -> str:
        side, bottom = 44.0, height - 18.0
        step = (width - 2 * side) / max(len(axes) - 1, 1)
        crowded = step < 110
        top = 46.0 if crowded else 30.0
        parts = []
        for trace in traces:
            points = " ".join(
                f"{side + i * step:.1f},{bottom - y * (bottom - top):.1f}" for i, y in enumerate(trace.heights)
            )
            parts.append(
                f'<polyline class="trace {trace.kind}" points="{points}"><title>{escape(trace.told)}</title></polyline>'
            )
        for i, (name, ticks) in enumerate(axes):
            x = side + i * step
            parts.append(f'<line class="axis" x1="{x:.1f}" y1="{top:g}" x2="{x:.1f}" y2="{bottom:g}"/>')
            anchor = "start" if i == 0 and len(name) > 8 else "end" if i == len(axes) - 1 else "middle"
            at = {"start": x - side + 2, "end": x + side - 2}.get(anchor, x)
            parts.append(_text(at, 30 if crowded and i % 2 else 14, name, anchor, "label"))
            inward = i == len(axes) - 1
            for y, told in ticks:
                at_y = bottom - y * (bottom - top) + 4
                parts.append(_text(x - 6 if inward else x + 6, at_y, told, "end" if inward else "start", "value"))
        return _svg(width, height, f"parallel-{width:g}", title, f"{len(traces)} trials over {len(axes)} axes.", parts)

    return _both(title, draw, (340, 340))


@dataclass(frozen=True)
class Score:
    """What trials are compared by, as it is told.

    Attributes:
        monitor: As for :func:`aggbuffer.fit`.
        name: Such as ``Validation loss``.
    """

    monitor: str
    name: str

    @property
    def percent(self) -> bool:
        """Whether it is a share, and higher is better."""
        return self.monitor == "val_accuracy"

    def text(self, value: float) -> str:
        return f"{100 * value:.2f} %" if self.percent else f"{value:.4f}"

    def tick(self, value: float) -> str:
        return f"{100 * value:.4g} %" if self.percent else f"{value:.4g}"


class _Frame:
    """Axes, and what is drawn into them."""

    def __init__(
        self,
        width: float,
        height: float,
        xs: tuple[float, float],
        heights: Sequence[float],
        score: Score,
        label: str = "",
    ) -> None:
        self.width, self.height, self.score = width, height, score
        self.x_low, self.x_high = xs
        self.ticks = _ticks(min(heights), max(heights), 5)
        if score.percent and max(heights) <= 1:  # no accuracy is higher
            self.ticks = [tick for tick in self.ticks if tick <= 1 + 1e-9]
        self.bottom = height - (_BOTTOM if label else _BOTTOM - 18)
        self.label = label
        self.parts: list[str] = []

    def x(self, value: float) -> float:
        return _LEFT + (value - self.x_low) / (self.x_high - self.x_low) * (self.width - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """What is outside, as a fit that was given up early may be, is drawn at the edge."""
        share = (value - self.ticks[0]) / (self.ticks[-1] - self.ticks[0])
        return self.bottom - min(max(share, 0.0), 1.0) * (self.bottom - _TOP)

    def axes(self, x_ticks: Sequence[tuple[float, str]]) -> None:
        right = self.width - _RIGHT
        for value in self.ticks:
            y = self.y(value)
            self.parts.append(f'<line class="grid" x1="{_LEFT:g}" y1="{y:.1f}" x2="{right:g}" y2="{y:.1f}"/>')
            self.parts.append(_text(_LEFT - 8, y + 4, self.score.tick(value), "end"))
        for value, told in x_ticks:
            if self.x_low <= value <= self.x_high:
                self.parts.append(_text(self.x(value), self.bottom + 18, told, "middle"))
        if self.label:
            self.parts.append(_text((_LEFT + right) / 2, self.height - 6, self.label, "middle", "label"))

    def line(self, points: Sequence[tuple[float, float]], kind: str, *, steps: bool = False) -> None:
        placed = [(self.x(x), self.y(y)) for x, y in points]
        if steps:
            corners = [(x, before[1]) for before, (x, _) in pairwise(placed)]
            placed = [placed[0], *(point for pair in zip(corners, placed[1:], strict=True) for point in pair)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        self.parts.append(f'<polyline class="curve {kind}" points="{path}"/>')

    def dots(self, dots: Sequence[Dot]) -> None:
        for dot in dots:
            self.parts.append(
                f'<circle class="trial {dot.kind}" cx="{self.x(dot.x):.1f}" cy="{self.y(dot.y):.1f}" r="4">'
                f"<title>{escape(dot.told)}</title></circle>"
            )

    def svg(self, name: str, title: str, description: str) -> str:
        return _svg(self.width, self.height, f"{name}-{self.width:g}", title, description, self.parts)


def _both(title: str, draw: Callable[[float, float], str], heights: tuple[float, float]) -> Plot:
    return Plot(title, Markup(draw(_WIDE, heights[0])), Markup(draw(_NARROW, heights[1])))


def _svg(width: float, height: float, name: str, title: str, description: str, parts: Sequence[str]) -> str:
    return (
        f'<svg role="img" aria-labelledby="{name}-title {name}-desc" viewBox="0 0 {width:g} {height:g}">'
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-desc">{escape(description)}</desc>{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, told: str, anchor: str, kind: str = "tick") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(told)}</text>'


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Round heights around an interval."""
    if high - low < 1e-9:
        low, high = low - 0.05 * max(abs(low), 1e-3), high + 0.05 * max(abs(high), 1e-3)
    rough = (high - low) / most
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(nice * size for nice in (1, 2, 5, 10) if nice * size >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]
