"""Figure: bias, robustness and accuracy on test nodes while a GCN trains, with and without DropEdge."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from aggbuffer.data import load
from aggbuffer.report.svg import Chart, epoch_ticks
from paper import picks
from paper.bases import Augmentation, train_new
from paper.environment import describe
from paper.figures.figure import Figure
from paper.figures.panels import Panel, band, side_by_side
from paper.figures.watch import Watched, terms
from paper.methods.dropedge import DropEdge
from paper.settings import BaseSettings
from paper.units import Unit, usual_base

DATASET, EPOCHS, EVERY = "PubMed", 200, 4
METHODS = {"GCN": "before", "DropEdge": "after"}
TOLD = {"accuracy": "accuracy", "bias": "bias term", "robust": "robustness term"}


def measure(unit: Unit, root: Path | None) -> dict[str, Any]:
    """Train both for a fixed number of epochs, watched under the same DropEdge; its ratio is the searched one."""
    data = load(unit.dataset, root, split=unit.split)
    picked = picks.for_unit(Unit.of(unit.dataset, "DropEdge", unit.split)) or {}
    share = float(picked[picks.RATIOS["DropEdge"]])
    started = time.monotonic()
    histories = watched(data, usual_base(unit.dataset), share, unit.split, EPOCHS, EVERY)
    return {
        "dataset": unit.dataset,
        "split": unit.split,
        "drop_edge": share,
        "epochs": list(range(0, EPOCHS, EVERY)),
        "histories": histories,
        "seconds": round(time.monotonic() - started, 2),
        "environment": describe(),
    }


def watched(
    data: Data, settings: BaseSettings, share: float, seed: int, epochs: int, every: int
) -> dict[str, dict[str, list[float]]]:
    """Every term on test nodes at every ``every``-th epoch, by method and name."""
    histories: dict[str, dict[str, list[float]]] = {}
    for method in METHODS:
        history = histories.setdefault(method, {name: [] for name in TOLD})

        def observe(
            _: int, clean: torch.Tensor, perturbed: torch.Tensor, history: dict[str, list[float]] = history
        ) -> None:
            mask = data.test_mask
            found = terms(clean[mask], perturbed[mask], data.y[mask])
            for name, values in history.items():
                values.append(found[name])

        inner = DropEdge(share) if method == "DropEdge" else Augmentation()
        look = Watched(inner, share, every, observe, seed)
        train_new(data, replace(settings, max_epochs=epochs, patience=epochs), seed, look)
    return histories


def draw(results: list[dict[str, Any]]) -> dict[str, str]:
    """Three panels."""
    epochs = results[0]["epochs"]
    panels = []
    for name, told in TOLD.items():
        lines = []
        for method, kind in METHODS.items():
            lines += band(kind, epochs, [result["histories"][method][name] for result in results])
        panels.append(Panel(told, Chart(f"curves-{name}", told, "", lines, "epoch", epoch_ticks(epochs[-1]),
                                        percent=name == "accuracy")))  # fmt: skip
    title = f"Training a GCN on {DATASET} with and without DropEdge: test nodes, {len(results)} runs, least to most"
    return {"curves.svg": side_by_side(title, panels, [("before", "GCN"), ("after", "GCN with DropEdge")], 3)}


FIGURE = Figure("curves", "Bias, robustness and accuracy while a GCN trains", DATASET, 10, measure, draw)
