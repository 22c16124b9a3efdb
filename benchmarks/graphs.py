"""The graphs that are timed: the paper's, one of the size of ogbn-arxiv, and a series of growing ones."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch_geometric.data import Data

from aggbuffer.data import load
from benchmarks.peers.protocol import CaseFile, Settings
from paper.bases import new
from paper.settings import BASE, BUFFER, BaseSettings, BufferSettings

LARGE = "169k nodes"
PAPER = ("Cora", "CiteSeer", "Chameleon", "PubMed", "Photo", "CS")
NAMES = (*PAPER, LARGE)
LR = 1e-2  # of every buffer's training
_GROWING = "generated "


@dataclass(frozen=True)
class Case:
    """A graph, the base model on it and how its buffer is trained."""

    name: str
    data: Data
    base: BaseSettings
    buffer: BufferSettings

    def settings(self, threads: int) -> Settings:
        """Everything but the arrays, for all contenders alike."""
        return Settings(
            graph=self.name,
            classes=int(self.data.y.max()) + 1,
            hidden=self.base.hidden,
            layers=self.base.layers,
            residual=self.base.residual,
            aggregation=self.base.aggregation,
            drop_edge=self.buffer.drop_edge,
            dropout=self.buffer.dropout,
            strength=self.buffer.strength,
            lr=LR,
            base_dropout=self.base.dropout,
            base_lr=self.base.lr,
            base_weight_decay=self.base.weight_decay,
            threads=threads,
        )

    def file(self, threads: int | None = None) -> CaseFile:
        """What the contenders read; the base model has its first weights, whose values cost what trained ones do."""
        gnn = new(self.data, self.base, seed=0)
        data = self.data
        return CaseFile(
            self.settings(threads or os.cpu_count() or 1),
            data.x,
            data.edge_index,
            data.y,
            data.train_mask,
            data.val_mask,
            dict(gnn.state_dict()),
        )


def case(name: str, root: Path | None = None) -> Case:
    """One case: the paper's with its widths and ratios, or a generated one."""
    if name == LARGE:  # as the paper has ogbn-arxiv
        data = generated(169_343, 1_166_243, features=128, classes=40)
        return Case(name, data, BASE["ogbn-arxiv"], BUFFER["ogbn-arxiv"])
    if name.startswith(_GROWING):
        return _growing(int(name.removeprefix(_GROWING)))
    return Case(name, load(name, root), BASE[name], BUFFER[name])


def growing(directed_edges: int) -> str:
    """The name of a case with that many directed edges, all else alike."""
    return f"{_GROWING}{directed_edges}"


def generated(nodes: int, links: int, *, features: int, classes: int, seed: int = 0) -> Data:
    """A random graph with uneven degrees and dense features.

    Args:
        nodes: N.
        links: How many undirected edges, exactly.
        features: F.
        classes: C.
        seed: Of everything.
    """
    draw = torch.Generator().manual_seed(seed)
    weight = torch.rand(nodes, generator=draw).pow(-0.6)
    pairs = torch.empty(0, dtype=torch.long)
    while pairs.numel() < links:  # what is drawn twice counts once
        ends = torch.multinomial(weight, 2 * links, replacement=True, generator=draw).view(2, links)
        low, high = ends.min(0).values, ends.max(0).values
        pairs = torch.cat([pairs, (low * nodes + high)[low != high]]).unique()
    pairs = pairs[torch.randperm(pairs.numel(), generator=draw)[:links]]
    ends = torch.stack([pairs // nodes, pairs % nodes])
    data = Data(x=torch.randn(nodes, features, generator=draw), edge_index=torch.cat([ends, ends.flip(0)], 1))
    data.y = torch.randint(classes, (nodes,), generator=draw)
    data.y[0] = classes - 1  # so that every draw has that many
    part = torch.rand(nodes, generator=draw)
    data.train_mask, data.val_mask = part < 0.5, part >= 0.8
    return data


def _growing(directed_edges: int, degree: int = 20, width: int = 64, classes: int = 16) -> Case:
    data = generated(max(2, directed_edges // degree), directed_edges // 2, features=width, classes=classes)
    return Case(growing(directed_edges), data, BaseSettings(width, 1e-2, 5e-4, 0.5), BufferSettings(0.5, 0.0, 0.5))
