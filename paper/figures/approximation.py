"""Figure: the robustness term by the model's own predictions and by labels, in both stages of training."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

import aggbuffer as ab
from aggbuffer.data import load
from aggbuffer.graph import Graph
from aggbuffer.perturb import drop_edge
from aggbuffer.report.svg import Chart, epoch_ticks
from aggbuffer.result import EpochRecord
from paper.bases import Augmentation, train_new
from paper.environment import describe
from paper.figures.figure import Figure
from paper.figures.panels import Panel, band, side_by_side
from paper.figures.watch import Watched, terms
from paper.methods import Task, gcn
from paper.runs import BASES
from paper.settings import BaseSettings, BufferSettings
from paper.units import Unit, usual_base, usual_buffer

DATASET = "PubMed"
EPOCHS = {"base": 200, "buffer": 300}
EVERY = {"base": 4, "buffer": 6}
TOLD = {"base": "training the GCN", "buffer": "training the buffers"}
WAYS = {"robust": "after", "robust_by_label": "before"}

History = dict[str, list[float]]


def measure(unit: Unit, root: Path | None) -> dict[str, Any]:
    """Both stages for fixed numbers of epochs, under the buffer's DropEdge, over all nodes."""
    data = load(unit.dataset, root, split=unit.split)
    base, buffer = usual_base(unit.dataset), usual_buffer(unit.dataset)
    started = time.monotonic()
    first = while_base_trains(data, base, buffer.drop_edge, unit.split, EPOCHS["base"], EVERY["base"])
    gnn = gcn.train(Task(unit.dataset, unit.split, data, BASES, base, buffer, {})).model
    second = while_buffer_trains(gnn, data, buffer, unit.split, EPOCHS["buffer"], EVERY["buffer"])
    return {
        "dataset": unit.dataset,
        "split": unit.split,
        "drop_edge": buffer.drop_edge,
        "epochs": {stage: list(range(0, EPOCHS[stage], EVERY[stage])) for stage in EPOCHS},
        "histories": {"base": first, "buffer": second},
        "seconds": round(time.monotonic() - started, 2),
        "environment": describe(),
    }


def while_base_trains(data: Data, settings: BaseSettings, share: float, seed: int, epochs: int, every: int) -> History:
    """Both ways at every ``every``-th epoch."""
    history: History = {way: [] for way in WAYS}

    def observe(_: int, clean: torch.Tensor, perturbed: torch.Tensor) -> None:
        _note(history, clean, perturbed, data)

    look = Watched(Augmentation(), share, every, observe, seed)
    train_new(data, replace(settings, max_epochs=epochs, patience=epochs), seed, look)
    return history


def while_buffer_trains(
    gnn: torch.nn.Module, data: Data, settings: BufferSettings, seed: int, epochs: int, every: int
) -> History:
    """The same of the buffers on a trained base, which is left as it was."""
    history: History = {way: [] for way in WAYS}
    model, graph = ab.attach(gnn, data), Graph.of(data)
    generator = torch.Generator().manual_seed(seed)

    def look() -> None:
        with torch.no_grad():
            perturbed = drop_edge(graph, settings.drop_edge, generator)
            _note(history, model.run(graph.data), model.run(perturbed), data)

    def after(record: EpochRecord) -> None:
        if record.epoch % every == 0 and record.epoch < epochs:
            look()

    look()
    ab.fit(
        model,
        data,
        seed=seed,
        self_loops="kept",
        max_epochs=epochs,
        patience=epochs,
        progress=False,
        callbacks=[after],
        **asdict(settings),
    )
    ab.detach(model)
    return history


def draw(results: list[dict[str, Any]]) -> dict[str, str]:
    """A panel a stage."""
    panels = []
    for stage, told in TOLD.items():
        epochs = results[0]["epochs"][stage]
        lines = []
        for way, kind in WAYS.items():
            lines += band(kind, epochs, [result["histories"][stage][way] for result in results])
        panels.append(Panel(told, Chart(f"approximation-{stage}", told, "", lines, "epoch", epoch_ticks(epochs[-1]))))
    title = f"The robustness term on {DATASET} by predictions and by labels: {len(results)} runs, least to most"
    legend = [("after", "by the model's predictions"), ("before", "by the labels")]
    return {"approximation.svg": side_by_side(title, panels, legend, 2)}


def _note(history: History, clean: torch.Tensor, perturbed: torch.Tensor, data: Data) -> None:
    found = terms(clean, perturbed, data.y)
    for way, values in history.items():
        values.append(found[way])


FIGURE = Figure("approximation", "The robustness term by predictions and by labels", DATASET, 10, measure, draw)
