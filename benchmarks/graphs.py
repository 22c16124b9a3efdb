"""The graphs that are timed: the paper's, and one of the size of ogbn-arxiv."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch_geometric.data import Data

from aggbuffer.data import load
from paper.settings import BASE, BUFFER, BaseSettings

LARGE = "169k nodes"


@dataclass(frozen=True)
class Case:
    """A graph, the base model on it and the dropout of its buffer's training."""

    name: str
    data: Data
    base: BaseSettings
    dropout: float
    drop_edge: float


def case(name: str, root: Path | None) -> Case:
    """One case with the paper's widths and ratios."""
    if name == LARGE:
        return Case(name, _large(), BaseSettings(512, 1e-2, 5e-5, 0.5, "rw"), 0.0, 0.5)
    buffer = BUFFER[name]
    return Case(name, load(name, root), BASE[name], buffer.dropout, buffer.drop_edge)


def _large(nodes: int = 169_343, links: int = 1_166_243, features: int = 128, classes: int = 40) -> Data:
    """Uneven degrees, dense features: what an ogbn-arxiv step costs, without its download."""
    draw = torch.Generator().manual_seed(0)
    weight = torch.rand(nodes, generator=draw).pow(-0.6)
    ends = torch.multinomial(weight, 2 * links, replacement=True, generator=draw).view(2, links)
    ends = torch.stack([ends.min(0).values, ends.max(0).values])[:, ends[0] != ends[1]].unique(dim=1)
    data = Data(x=torch.randn(nodes, features, generator=draw), edge_index=torch.cat([ends, ends.flip(0)], 1))
    data.y = torch.randint(classes, (nodes,), generator=draw)
    part = torch.rand(nodes, generator=draw)
    data.train_mask, data.val_mask = part < 0.5, part >= 0.8
    return data
