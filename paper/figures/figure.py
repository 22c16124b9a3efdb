"""What a figure is: units that measure what it shows, and a drawing of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paper.store import Store
from paper.units import Unit

ASSETS = Path(__file__).parents[2] / "docs" / "assets"


@dataclass(frozen=True)
class Figure:
    """One figure.

    Attributes:
        name: Of the command.
        title: What it shows.
        dataset: The graph it is measured on.
        splits: How many.
        measure: Measures one unit.
        draw: Draws all that has been measured; returns SVG by file name.
    """

    name: str
    title: str
    dataset: str
    splits: int
    measure: Callable[[Unit, Path | None], dict[str, Any]]
    draw: Callable[[list[dict[str, Any]]], dict[str, str]]

    def unit(self, split: int) -> Unit:
        """One split of what it shows."""
        return Unit.of(self.dataset, f"figure {self.name}", split)

    def units(self, splits: int | None = None) -> Iterator[Unit]:
        """Every split."""
        return (self.unit(split) for split in range(splits or self.splits))

    def drawn(self, store: Store) -> dict[Path, str]:
        """What it looks like from the committed results, by path; nothing without any."""
        results = list(store.all_splits(self.unit(0)).values())
        return {ASSETS / name: svg for name, svg in self.draw(results).items()} if results else {}

    def write(self, store: Store) -> list[Path]:
        """Draw it into the documentation's assets."""
        ASSETS.mkdir(parents=True, exist_ok=True)
        drawn = self.drawn(store)
        for path, svg in drawn.items():
            path.write_text(svg)
        return list(drawn)
