"""Means, deviations, ranks and paired intervals over splits, as plain functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


def mean(values: Sequence[float]) -> float:
    """The mean; NaN of nothing."""
    return math.fsum(values) / len(values) if values else math.nan


def deviation(values: Sequence[float]) -> float:
    """The sample standard deviation; NaN of fewer than two values."""
    if len(values) < 2:
        return math.nan
    middle = mean(values)
    return math.sqrt(math.fsum((v - middle) ** 2 for v in values) / (len(values) - 1))


def ranks(values: Sequence[float]) -> list[float]:
    """1 for the largest; equals share the mean of their places."""
    return [1 + sum(o > v for o in values) + (sum(o == v for o in values) - 1) / 2 for v in values]


@dataclass(frozen=True)
class Paired:
    """A mean difference over splits and its interval."""

    difference: float
    low: float
    high: float
    count: int


def paired(before: Sequence[float], after: Sequence[float], level: float = 0.95) -> Paired:
    """The mean of ``after - before`` with Student's interval; without bounds for fewer than two pairs."""
    differences = [b - a for a, b in zip(before, after, strict=True)]
    middle, count = mean(differences), len(differences)
    if count < 2:
        return Paired(middle, math.nan, math.nan, count)
    from scipy.stats import t  # takes a second to import, and only this needs it

    half = float(t.ppf((1 + level) / 2, count - 1)) * deviation(differences) / math.sqrt(count)
    return Paired(middle, middle - half, middle + half, count)
