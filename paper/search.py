"""The searches behind the hyperparameters: on split 0, judged on validation accuracy alone.

DropEdge, DropNode, DropMessage and TUNEUP: the ratio, over the paper's whole grid; TUNEUP keeps the base's learning
rate, dropout and weight decay, which the paper searches too. MLP: the base's grid one coordinate after another, each
starting from the best so far, beginning with the base's own settings; ten of 108 combinations. GraphPatcher runs with
its authors' settings. The buffer's whole grid is there as well, but the tables use the paper's published choice.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from paper import picks
from paper.settings import GRIDS
from paper.store import Store
from paper.units import BUFFERS, Unit, Value

SPLIT = 0
BUFFER_METHODS = ("GCN_B paper", "GCN_B reference", "GCN_B default")
METHODS = picks.SEARCHED


def units(store: Store, datasets: Iterable[str], methods: Sequence[str]) -> list[Unit]:
    """What can be measured now; the next coordinate of an MLP becomes known when the one before has been measured."""
    every = [(method, dataset) for method in methods for dataset in datasets]
    return [unit for method, dataset in every for unit in _of_method(store, method, dataset)]


def pick(store: Store, dataset: str, method: str) -> dict[str, Any] | None:
    """The best of a finished search, in the form of ``paper/configs``; None before it is finished.

    Of equals the first in the grid is taken, which is the mildest.
    """
    tried = _of_method(store, method, dataset)
    best = _best(store, tried)
    if best is None:
        return None
    unit, validation = best
    return {"changes": dict(unit.changes), "validation": validation, "tried": len(tried), "split": SPLIT}


def write_picks(store: Store, datasets: Iterable[str]) -> list[str]:
    """Write the choice of every finished search to ``paper/configs``; return what to tell."""
    told = []
    for dataset in datasets:
        found = {method: pick(store, dataset, method) for method in METHODS}
        chosen = {method: choice for method, choice in found.items() if choice}
        if chosen:
            picks.write(dataset, {**picks.read(dataset), **chosen})
            told += [
                f"{dataset} {m}: {c['changes']} of {c['tried']} ({c['validation']:.4f})" for m, c in chosen.items()
            ]
        told += [f"{dataset} {method}: not finished" for method, choice in found.items() if choice is None]
    return told


def _of_method(store: Store, method: str, dataset: str) -> list[Unit]:
    if method in picks.RATIOS:
        name = picks.RATIOS[method]
        return [_unit(dataset, method, {name: ratio}) for ratio in GRIDS[method][name]]
    if method == "MLP":
        return _coordinates(store, dataset, method)
    if method in BUFFER_METHODS:
        names = [BUFFERS + name for name in GRIDS["GCN_B paper"]]
        grid = itertools.product(*GRIDS["GCN_B paper"].values())
        return [_unit(dataset, method, dict(zip(names, values, strict=True))) for values in grid]
    raise LookupError(f"there is no grid for {method!r}; there is one for {', '.join((*METHODS, *BUFFER_METHODS))}")


def _coordinates(store: Store, dataset: str, method: str) -> list[Unit]:
    """The base's own settings, then all values of one setting after another, as far as results allow."""
    tried = [_unit(dataset, method, {})]
    for name, values in GRIDS[method].items():
        best = _best(store, tried)
        if best is None:
            break
        so_far = dict(best[0].changes)
        wider = [_unit(dataset, method, {**so_far, name: value}) for value in values]
        tried += [unit for unit in wider if unit not in tried]
    return tried


def _best(store: Store, units: Sequence[Unit]) -> tuple[Unit, float] | None:
    """The first unit with the highest validation accuracy; None unless all have been measured."""
    results = [store.read(unit) for unit in units]
    if not all(results):
        return None
    scores = [result["validation"] for result in results if result]
    at = max(range(len(units)), key=scores.__getitem__)
    return units[at], scores[at]


def _unit(dataset: str, method: str, changes: dict[str, Value]) -> Unit:
    return Unit.of(dataset, method, SPLIT, changes, search=True)
