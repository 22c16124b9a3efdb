"""Numbers as a reader wants them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

MINUS, DASH = "\u2212", "–"


@dataclass(frozen=True)
class Told:
    """One line of a comparison, ready to be printed.

    Attributes:
        name: As in the comparison.
        kept: Share of edges kept, for a line of the edge-removal scores.
        before: A share for classes and labels, the root mean squared error for regression.
        after: The same, later.
        spread: Standard deviation over draws of removed edges, before and after.
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
    spread: tuple[float, float]
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
            spread=(0.0, 0.0) if regression else (before["deviation"], after["deviation"]),
            gain=scale * interval["difference"],
            low=scale * interval["low"],
            high=scale * interval["high"],
            count=before["count"],
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
    def was(self) -> str:
        return self._value(self.before)

    @property
    def now(self) -> str:
        return self._value(self.after)

    @property
    def change(self) -> str:
        """Such as ``+5.4 points``."""
        return f"{self.signed} points" if self.measure == "accuracy" else f"{self.signed} in negative MSE"

    @property
    def signed(self) -> str:
        return self._signed(self.gain)

    @property
    def interval(self) -> str:
        """Such as ``+4.0 to +6.8``."""
        return f"{self._signed(self.low)} to {self._signed(self.high)}"

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


def share(value: float | None, digits: int = 1) -> str:
    """``0.905`` as ``90.5 %``; a dash for what is missing."""
    return DASH if value is None else f"{100 * value:.{digits}f} %"


def number(value: float) -> str:
    """Whole numbers with separators, others with a few digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def size(count: int) -> str:
    """Bytes as kB or MB."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"
