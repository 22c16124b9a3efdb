"""How long units take, learned from those that have been measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from paper.statistics import mean
from paper.store import Store
from paper.units import Unit


class Durations:
    """Seconds of past units: of the very variant, else of the method on that graph.

    Args:
        store: Where past units are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._of_variant: dict[tuple[str, str], list[float]] = {}
        self._of_method: dict[tuple[str, str], list[float]] = defaultdict(list)

    def expected(self, unit: Unit) -> float | None:
        """Seconds that a unit can be expected to take; None if nothing like it has been measured."""
        known = self._known(unit) or self._of_method.get((unit.dataset, unit.method), [])
        return mean(known) if known else None

    def add(self, unit: Unit, seconds: float) -> None:
        """Learn from a unit that has just been measured."""
        self._known(unit).append(seconds)
        self._of_method[unit.dataset, unit.method].append(seconds)

    def total(self, units: Iterable[Unit]) -> tuple[float, int]:
        """Seconds of all units that can be told, and how many cannot."""
        every = [self.expected(unit) for unit in units]
        return sum(seconds for seconds in every if seconds is not None), sum(seconds is None for seconds in every)

    def _known(self, unit: Unit) -> list[float]:
        key = (unit.dataset, unit.name)
        if key not in self._of_variant:
            past = self._store.all_splits(unit).values()
            self._of_variant[key] = [r["seconds"] + r.get("evaluation_seconds", 0.0) for r in past]
            self._of_method[unit.dataset, unit.method] += self._of_variant[key]
        return self._of_variant[key]


def told(seconds: float) -> str:
    """A duration in words: two units are enough."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def estimate(durations: Durations, units: Iterable[Unit], jobs: int = 1) -> str:
    """How long units will take with so many processes, in words."""
    seconds, unknown = durations.total(units)
    known = [told(seconds / jobs)] if seconds or not unknown else []
    return " and ".join([*known, *([f"{unknown} units like none measured"] if unknown else [])])
