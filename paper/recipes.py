"""Which recipe of GCN_B ends at the lowest validation loss: what the library's default was chosen by."""

from __future__ import annotations

import math
from typing import Any

from aggbuffer.text import markdown_table
from paper.definitions import HERE, TABLES, Line
from paper.statistics import mean
from paper.store import Store
from paper.units import Unit

_TEXT = "GCN_B paper"


def lines() -> list[Line]:
    """Every recipe but the paper's own, which the others are measured by."""
    return [line for line in TABLES["deviations"].lines if line.method not in ("GCN", _TEXT)]


def changes(store: Store, method: str) -> dict[str, list[float]]:
    """By graph, how far the validation loss of each split is from that of the paper's text, in percent of it."""
    found = {}
    for dataset in HERE:
        text, ours = (_losses(store, dataset, name) for name in (_TEXT, method))
        both = sorted(text.keys() & ours.keys())
        if both:
            found[dataset] = [100 * (ours[split] / text[split] - 1) for split in both]
    return found


def report(store: Store) -> str:
    """The changes of all recipes as markdown."""
    rows = []
    for line in lines():
        found = changes(store, line.method)
        cells = [_told(found.get(dataset, [])) for dataset in HERE]
        rows.append([line.label, *cells, _signed(mean([mean(values) for values in found.values()]))])
    return markdown_table(["validation loss against the paper's text, %", *HERE, "mean"], rows)


def _losses(store: Store, dataset: str, method: str) -> dict[int, float]:
    found = store.all_splits(Unit.of(dataset, method, 0))
    return {split: loss for split, result in found.items() if (loss := _loss(result["training"])) is not None}


def _loss(training: dict[str, Any]) -> float | None:
    """What training was stopped on, which the first results call by its name."""
    loss: float | None = training.get("best_score", training.get("val_loss"))
    return loss


def _told(values: list[float]) -> str:
    return f"{_signed(mean(values))} ({len(values)})" if values else "–"


def _signed(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:+.1f}".replace("-", "−")
