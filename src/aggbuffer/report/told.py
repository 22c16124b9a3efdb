"""Numbers as a reader wants them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from aggbuffer.report.intervals import wilson

MINUS, DASH = "\u2212", "–"


@dataclass(frozen=True)
class Told:
    """One line of a comparison, ready to be printed.

    Attributes:
        name: As in the comparison.
        kept: Share of edges kept, for a line of the edge-removal scores.
        before: A share for classes and labels, the root mean squared error for regression.
        after: The same, later.
        bands: Interval of ``before`` and of ``after``.
        gain: What was gained, in points of accuracy or in negative mean squared error.
        low: Lower end of its interval.
        high: Upper end.
        count: Number of nodes.
        measure: What ``before`` and ``after`` are.
    """

    name: str
    kept: float | None
    before: float
    after: float
    bands: tuple[tuple[float, float], tuple[float, float]]
    gain: float
    low: float
    high: float
    count: int
    measure: str

    @classmethod
    def of(cls, row: Mapping[str, Any], task: str) -> Self:
        """From one entry of ``Comparison.to_dict()["differences"]`` with its ``kept``."""
        regression = task == "regression"
        key, scale = ("rmse", 1) if regression else ("accuracy", 100)
        before, after, interval = row["before"], row["after"], row["accuracy"]
        return cls(
            name=row["name"],
            kept=row["kept"],
            before=before[key],
            after=after[key],
            bands=(_band(before, key), _band(after, key)),
            gain=scale * interval["difference"],
            low=scale * interval["low"],
            high=scale * interval["high"],
            count=before["count"],
            measure="RMSE" if regression else "accuracy",
        )

    @classmethod
    def of_bin(cls, label: str, count: int, told: Mapping[str, Any], task: str) -> Self:
        """From one bin at one share of edges."""
        regression = task == "regression"
        before, after, change = told["before"], told["after"], told["change"]
        scale = 1 if regression else 100
        return cls(
            name=label,
            kept=None,
            before=before["value"],
            after=after["value"],
            bands=((before["low"], before["high"]), (after["low"], after["high"])),
            gain=scale * change["difference"],
            low=scale * change["low"],
            high=scale * change["high"],
            count=count,
            measure="RMSE" if regression else "accuracy",
        )

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0

    @property
    def better(self) -> bool:
        return self.gain > 0

    @property
    def measure_name(self) -> str:
        """The measure as a sentence begins with it."""
        return self.measure[0].upper() + self.measure[1:]

    @property
    def was(self) -> str:
        return self._value(self.before)

    @property
    def now(self) -> str:
        return self._value(self.after)

    @property
    def change(self) -> str:
        """Such as ``+5.4 points``."""
        return f"{self.signed} points" if self.measure == "accuracy" else f"{self.signed} in MSE"

    @property
    def signed(self) -> str:
        """The change as it is told: points of accuracy, or the mean squared error, of which less is better."""
        return self._signed(self.gain if self.measure == "accuracy" else -self.gain)

    @property
    def interval(self) -> str:
        """Such as ``+4.0 to +6.8``."""
        low, high = (self.low, self.high) if self.measure == "accuracy" else (-self.high, -self.low)
        return f"{self._signed(low)} to {self._signed(high)}"

    def in_words(self) -> str:
        """What the buffer does here, such as ``adds 5.4 points of accuracy``."""
        if not self.clear:
            return "makes no clear difference"
        amount = f"{abs(self.gain):.1f} points of accuracy" if self.measure == "accuracy" else "error"
        if self.measure == "RMSE":
            return f"{'lowers' if self.better else 'raises'} the {amount}"
        return f"{'adds' if self.better else 'costs'} {amount}"

    def _value(self, value: float) -> str:
        return share(value) if self.measure == "accuracy" else f"{value:.4g}"

    def _signed(self, value: float) -> str:
        told = f"{abs(value):.1f}" if self.measure == "accuracy" else f"{abs(value):.2g}"
        return told if float(told) == 0 else f"{'+' if value > 0 else MINUS}{told}"


def _band(side: Mapping[str, Any], key: str) -> tuple[float, float]:
    """A score's interval; what older records do not hold is worked out for shares, and left out for others."""
    if "low" in side:
        return side["low"], side["high"]
    return wilson(side[key], side["count"]) if key == "accuracy" else (side[key], side[key])


def gone(kept: float) -> str:
    """Such as ``half of the edges gone``."""
    known = {1.0: "every edge in place", 0.5: "half of the edges gone", 0.0: "all edges gone"}
    return known.get(kept, f"{100 * (1 - kept):.4g} % of the edges gone")


def short(value: float | None) -> str:
    """About three digits, with separators."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def seconds(value: float) -> str:
    """A time as a person would say it."""
    return f"{1e3 * value:.2g} ms" if value < 0.01 else f"{1e3 * value:.0f} ms" if value < 1 else f"{value:.1f} s"


def share(value: float | None, digits: int = 1) -> str:
    """``0.905`` as ``90.5 %``; a dash for what is missing."""
    return DASH if value is None else f"{100 * value:.{digits}f} %"


def number(value: float) -> str:
    """Whole numbers with separators, others with a few digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def size(count: int) -> str:
    """Bytes as kB or MB."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"
