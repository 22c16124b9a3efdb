"""The demonstration: the whole way from a graph to a buffer that is worth its parameters, in under a minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCN

from aggbuffer.cli.graphs import write_graph
from aggbuffer.config import FitConfig
from aggbuffer.data import DEMO_DESCRIPTION, demo_graph
from aggbuffer.files import write_json, write_safetensors
from aggbuffer.logs import JsonLines
from aggbuffer.report import Run, fit_and_judge, write_report
from aggbuffer.text import percent

BUFFER, BASE, GRAPH, REPORT, RECORD, EVENTS = (
    "demo.aggbuffer.safetensors",
    "base.safetensors",
    "graph.npz",
    "report.html",
    "run.json",
    "events.jsonl",
)

# Chosen on validation nodes alone: the base as the best of 24 (2 or 3 layers, dropout 0, 0.2, 0.5, weight decay 0,
# 5e-4, learning rate 1e-2, 3e-3), the fit as the best of 16 over all shares of edges kept (DropEdge 0.2, 0.5, 0.7, 1,
# strength 0.5, 1, dropout 0, 0.5).
_HIDDEN, _LAYERS, _DROPOUT, _WEIGHT_DECAY, _LR = 64, 2, 0.5, 5e-4, 1e-2
_PATIENCE, _MAX_EPOCHS = 100, 500
CONFIG = FitConfig(drop_edge=0.7, strength=0.5, dropout=0.0)


def build_base(data: Data) -> GCN:
    """The demonstration's GNN, untrained: PyG's two-layer GCN."""
    return GCN(data.num_features, _HIDDEN, _LAYERS, int(data.y.max()) + 1, dropout=_DROPOUT)


def train_base(data: Data, seed: int = 0) -> tuple[GCN, float]:
    """Train the GNN as one does, and keep the epoch with the best validation accuracy.

    Returns:
        The GNN in evaluation mode, and that accuracy.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        gnn = build_base(data)
        optimizer = torch.optim.Adam(gnn.parameters(), lr=_LR, weight_decay=_WEIGHT_DECAY)
        best, best_epoch, state = -1.0, 0, gnn.state_dict()
        for epoch in range(_MAX_EPOCHS):
            gnn.train()
            optimizer.zero_grad()
            logits = gnn(data.x, data.edge_index)
            loss = F.cross_entropy(logits[data.train_mask], data.y[data.train_mask])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            accuracy = _validation_accuracy(gnn, data)
            if accuracy > best:
                best, best_epoch = accuracy, epoch
                state = {name: value.clone() for name, value in gnn.state_dict().items()}
            elif epoch - best_epoch >= _PATIENCE:
                break
    gnn.load_state_dict(state)
    return gnn.eval(), best


def run_demo(
    folder: Path, *, progress: bool | None, say: Callable[[str], None], edge_loss: float = 0.5
) -> tuple[Run, dict[str, Any]]:
    """Train a GNN on the demonstration graph, diagnose it, fit a buffer, and write everything down.

    Args:
        folder: Where to; it exists.
        progress: As for :func:`aggbuffer.fit`.
        say: Told, in a sentence or two, what is known so far.
        edge_loss: Share of the edges that are expected to be missing in use.

    Returns:
        The run, and what ``run.json`` holds.
    """
    with _one_thread():
        return _run_demo(folder, progress, say, edge_loss)


def _run_demo(
    folder: Path, progress: bool | None, say: Callable[[str], None], edge_loss: float
) -> tuple[Run, dict[str, Any]]:
    data = demo_graph()
    say(DEMO_DESCRIPTION)
    started = time.monotonic()
    gnn, accuracy = train_base(data)
    say(f"Trained a two-layer GCN in {time.monotonic() - started:.1f} s: {percent(accuracy, 1)} on validation nodes.")
    write_graph(folder / GRAPH, data)
    write_safetensors(gnn.state_dict(), folder / BASE, {"model": "aggbuffer.demo:build_base"})
    log = JsonLines(folder / EVENTS)
    run = fit_and_judge(
        gnn, data, folder / BUFFER, config=CONFIG, edge_loss=edge_loss, progress=progress, say=say, callbacks=[log]
    )
    record = run.to_dict(
        title="Demonstration: handwritten digits", description=DEMO_DESCRIPTION, load_code=load_code(folder)
    )
    write_json(record, folder / RECORD)
    write_report(folder / REPORT, record)
    return run, record


def load_code(folder: Path) -> str:
    """Python code that loads the buffer which the demonstration wrote."""
    return f"""import aggbuffer as ab
from aggbuffer.demo import build_base
from safetensors.torch import load_file

data = ab.data.read_graph({str(folder / GRAPH)!r})
gnn = build_base(data)
gnn.load_state_dict(load_file({str(folder / BASE)!r}))
model = ab.load(gnn, {str(folder / BUFFER)!r})
logits = model(data.x, data.edge_index)"""


@contextmanager
def _one_thread() -> Iterator[None]:
    """On so small a graph threads wait for each other longer than they work, minutes on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _validation_accuracy(gnn: GCN, data: Data) -> float:
    gnn.eval()
    with torch.no_grad():
        right = gnn(data.x, data.edge_index).argmax(-1) == data.y
    return float(right[data.val_mask].float().mean())
