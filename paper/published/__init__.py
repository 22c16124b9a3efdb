"""The numbers that the paper prints, in percent: ``values[metric][line][graph] = [mean, deviation]``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


@cache
def read(name: str) -> dict[str, Any]:
    """One table; empty if the paper has none of this name."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text()) if name and path.exists() else {}


def value(names: Sequence[str], metric: str, line: str | None, dataset: str) -> tuple[float, float] | None:
    """The published mean and deviation of a cell, from the first of the tables that has it."""
    for name in names:
        if found := read(name).get("values", {}).get(metric, {}).get(line, {}).get(dataset):
            return found[0], found[1]
    return None


def rank(names: Sequence[str], line: str | None) -> float | None:
    """The published average rank of a line."""
    return next((found for name in names if (found := read(name).get("ranks", {}).get(line)) is not None), None)
