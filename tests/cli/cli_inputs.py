"""A small graph, a model file and its weights, as a user would have them on disk."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCN
from torch_geometric.utils import coalesce

NODES, FEATURES, CLASSES = 60, 5, 3

MODEL = """
from torch_geometric.nn import GCN


def build(data):
    return GCN(data.num_features, 8, 2, 3)


def build_without_graph():
    return GCN(5, 8, 2, 3)


def build_other():
    return GCN(5, 16, 2, 3)


def broken():
    raise RuntimeError("no such checkpoint")


def chatty(data):
    print("hello from the model")
    return build(data)


def nothing():
    return 42


answer = 42
"""


@dataclass(frozen=True)
class Files:
    """Paths of the inputs.

    Attributes:
        folder: That all are in.
        graph: A ``.pt`` file.
        model: A Python file with factories.
        weights: A ``.safetensors`` file.
    """

    folder: Path
    graph: Path
    model: Path
    weights: Path

    @property
    def inputs(self) -> list[str]:
        """The options that name graph, model and weights."""
        return ["--graph", str(self.graph), "--model", f"{self.model}:build", "--weights", str(self.weights)]


def write_files(folder: Path) -> Files:
    """Write a graph, a model file and weights."""
    files = Files(folder, folder / "graph.pt", folder / "model.py", folder / "weights.safetensors")
    torch.save(clustered_graph(), files.graph)
    files.model.write_text(MODEL)
    save_file(trained_state(), files.weights)
    return files


def clustered_graph() -> Data:
    """Three noisy clusters, undirected, with labels and masks."""
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(NODES) % CLASSES
    x = torch.nn.functional.one_hot(y, FEATURES).float() + torch.randn(NODES, FEATURES, generator=draw)
    ends = torch.randint(NODES, (2, 400), generator=draw)
    ends = ends[:, (y[ends[0]] == y[ends[1]]) & (ends[0] != ends[1])]
    part = torch.rand(NODES, generator=draw)
    data = Data(x=x, y=y, edge_index=coalesce(torch.cat([ends, ends.flip(0)], dim=1)))
    data.train_mask, data.val_mask, data.test_mask = part < 0.3, (part >= 0.3) & (part < 0.6), part >= 0.6
    return data


def trained_state() -> dict[str, Tensor]:
    """Weights of a GCN, trained for a moment."""
    data = clustered_graph()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        gnn = GCN(FEATURES, 8, 2, CLASSES)
    optimizer = torch.optim.Adam(gnn.parameters(), lr=0.05)
    for _ in range(30):
        optimizer.zero_grad()
        logits = gnn(data.x, data.edge_index)
        torch.nn.functional.cross_entropy(logits[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
    return {name: value.detach().clone() for name, value in gnn.state_dict().items()}


def as_npz(folder: Path) -> Path:
    """The graph as an archive of arrays."""
    path = folder / "graph.npz"
    np.savez(path, **{name: value.numpy() for name, value in clustered_graph().to_dict().items()})
    return path


def as_tables(folder: Path) -> Path:
    """The graph as a folder of two CSV files."""
    data, path = clustered_graph(), folder / "tables"
    path.mkdir()
    split = ["train" if a else "val" if b else "test" for a, b in zip(data.train_mask, data.val_mask, strict=True)]
    with (path / "edges.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["source", "target"], *data.edge_index.t().tolist()])
    with (path / "nodes.csv").open("w", newline="") as file:
        rows = zip(data.y.tolist(), split, data.x.tolist(), strict=True)
        header = ["label", "split", *(f"x{i}" for i in range(FEATURES))]
        csv.writer(file).writerows([header, *([label, part, *x] for label, part, x in rows)])
    return path
