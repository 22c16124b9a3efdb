"""What the trials of a search say about its settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aggbuffer.sweep.board import value_text
from aggbuffer.sweep.records import TrialRecord
from aggbuffer.sweep.space import Range, Space

_BINS = 5


@dataclass(frozen=True)
class Axis:
    """One setting as a plot needs it.

    Attributes:
        name: Of the setting.
        values: Its choices in order, or None for a range.
        range: Its range, or None for choices.
    """

    name: str
    values: tuple[Any, ...] | None
    range: Range | None

    @classmethod
    def of(cls, name: str, found: tuple[Any, ...] | Range) -> Axis:
        if isinstance(found, Range):
            return cls(name, None, found)
        ordered = sorted(found) if all(isinstance(v, int | float) for v in found) else list(found)
        return cls(name, tuple(ordered), None)

    def at(self, value: Any) -> float:
        """Where a value is, from 0 to 1."""
        if self.range is None:
            assert self.values is not None
            return (self.values.index(value) + 0.5) / len(self.values)
        low, high, here = self.range.low, self.range.high, float(value)
        if self.range.log:
            low, high, here = math.log(low), math.log(high), math.log(here)
        return (here - low) / (high - low)

    def level(self, value: Any) -> int:
        """Which of its choices, or of a few equal parts of its range, a value is."""
        levels = _BINS if self.values is None else len(self.values)
        return min(int(self.at(value) * levels), levels - 1)

    def ticks(self) -> list[tuple[float, str]]:
        """Where to write what."""
        if self.range is None:
            assert self.values is not None
            return [(self.at(value), value_text(value)) for value in self.values]
        return [(0.0, value_text(self.range.low)), (1.0, value_text(self.range.high))]


@dataclass(frozen=True)
class Effect:
    """One setting's part in the scores.

    Attributes:
        axis: The setting.
        share: Of the variance of the scores, what the means of this setting's levels explain alone; None where all
            scores are equal.
        means: Centre of each level that was tried, and its mean score.
    """

    axis: Axis
    share: float | None
    means: list[tuple[float, float]]


def axes_of(space: Space) -> list[Axis]:
    """The settings with more than one choice."""
    axes = [Axis.of(name, found) for name, found in space.settings.items()]
    return [axis for axis in axes if axis.values is None or len(axis.values) > 1]


def effects(axes: Sequence[Axis], trials: Sequence[TrialRecord]) -> list[Effect]:
    """What each setting does, by complete trials; the strongest first."""
    found = [_effect(axis, [t for t in trials if t.state == "complete"]) for axis in axes]
    return sorted(found, key=lambda effect: -(effect.share or 0.0))


def _effect(axis: Axis, trials: Sequence[TrialRecord]) -> Effect:
    levels: dict[int, list[tuple[float, float]]] = {}
    for trial in trials:
        assert trial.score is not None
        value = trial.settings[axis.name]
        levels.setdefault(axis.level(value), []).append((axis.at(value), trial.score))
    scores = [score for level in levels.values() for _, score in level]
    mean = sum(scores) / len(scores)
    total = sum((score - mean) ** 2 for score in scores)
    means = [
        (sum(at for at, _ in level) / len(level), sum(score for _, score in level) / len(level))
        for _, level in sorted(levels.items())
    ]
    between = sum(
        len(level) * (own - mean) ** 2 for (_, level), (_, own) in zip(sorted(levels.items()), means, strict=True)
    )
    return Effect(axis, between / total if total > 1e-18 else None, means)
