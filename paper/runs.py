"""Measure one unit: train, evaluate, and tell everything that a reader might ask."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aggbuffer as ab
from aggbuffer.data import load
from paper import picks
from paper.environment import describe, forget_peak_memory, peak_memory
from paper.methods import Task, by_name
from paper.store import Store
from paper.units import Unit, settings_of

BASES = Path(__file__).parent / ".bases"


def measure(unit: Unit, root: Path | None) -> dict[str, Any]:
    """Train and evaluate one unit; a search sees validation nodes only.

    Args:
        unit: What to measure.
        root: Folder with the graphs.
    """
    data = load(unit.dataset, root, split=unit.split)
    picked = picks.for_unit(unit)
    settings = settings_of(unit.dataset, {**dict(unit.changes), **(picked or {})})
    task = Task(
        unit.dataset, unit.split, data, BASES, base=settings.base, buffer=settings.buffer, params=settings.params
    )
    forget_peak_memory()
    started = time.monotonic()
    outcome = by_name()[unit.method](task)
    seconds = time.monotonic() - started
    peak = peak_memory()
    started = time.monotonic()
    result: dict[str, Any] = {
        "dataset": unit.dataset,
        "method": unit.method,
        "changes": dict(unit.changes),
        "split": unit.split,
        "seed": unit.split,
        "validation": _rounded(ab.evaluate(outcome.model, data, mask="val_mask", keep=(1,)).overall.accuracy),
    }
    if not unit.search:
        result["test"] = _scores(ab.evaluate(outcome.model, data, seed=unit.split))
    return result | {
        "settings": {"base": asdict(settings.base), "buffer": asdict(settings.buffer), "params": settings.params},
        "picked": picked,
        "training": outcome.record,
        "seconds": round(seconds, 2),
        "evaluation_seconds": round(time.monotonic() - started, 2),
        "peak_memory_mib": round(peak),
        "environment": describe(),
    }


def results(dataset: str, method: str) -> list[dict[str, Any]]:
    """The committed results of a method without variant, by split."""
    return list(Store().all_splits(Unit.of(dataset, method, 0)).values())


def _scores(evaluation: ab.Evaluation) -> dict[str, Any]:
    """Every metric, without entries that do not apply, to six digits: a node in a million."""

    def trim(values: dict[str, Any]) -> dict[str, Any]:
        return {
            key: trim(value) if isinstance(value, dict) else _rounded(value)
            for key, value in values.items()
            if value is not None
        }

    return trim(evaluation.to_dict())


def _rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value
