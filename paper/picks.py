"""Hyperparameters that a search picked on validation accuracy: ``paper/configs/<dataset>.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aggbuffer.files import write_bytes
from paper.store import as_text
from paper.units import Unit, Value

CONFIGS = Path(__file__).parent / "configs"

# What each method calls the ratio that is searched.
RATIOS = {"DropEdge": "drop", "DropNode": "drop", "DropMessage": "drop", "TUNEUP": "drop_edge"}
SEARCHED = (*RATIOS, "MLP")


def read(dataset: str) -> dict[str, Any]:
    """What was picked for a graph, by method."""
    path = CONFIGS / f"{dataset}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def write(dataset: str, chosen: dict[str, Any]) -> Path:
    """Keep what was picked for a graph."""
    CONFIGS.mkdir(exist_ok=True)
    path = CONFIGS / f"{dataset}.json"
    write_bytes(as_text(chosen).encode(), path)
    return path


def needed(unit: Unit) -> bool:
    """Whether the method's settings come from a search; a search itself and fixed ratios need none."""
    return unit.method in SEARCHED and not unit.search and RATIOS.get(unit.method) not in dict(unit.changes)


def for_unit(unit: Unit) -> dict[str, Value] | None:
    """What was picked for a unit; None where nothing is needed.

    Raises:
        LookupError: If something is needed that has not been picked.
    """
    if not needed(unit):
        return None
    chosen = read(unit.dataset).get(unit.method)
    if chosen is None:
        raise LookupError(f"{unit.method} on {unit.dataset} has no settings yet; {how_to_pick(unit.dataset)}")
    return dict(chosen["changes"])


def how_to_pick(datasets: str) -> str:
    """What to run before."""
    return f"run `python -m paper run search --datasets {datasets}` and then `python -m paper search-pick`."
