"""The methods that the paper compares, one a file. Each turns a split into a model that can be evaluated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from torch_geometric.data import Data


@dataclass(frozen=True)
class Task:
    """One split of one graph.

    Attributes:
        dataset: The graph's name.
        split: Which split; also the seed.
        data: With the split's masks.
        bases: Folder in which trained base models are kept for other methods.
    """

    dataset: str
    split: int
    data: Data
    bases: Path


@dataclass(frozen=True)
class Outcome:
    """A trained model and what is worth recording of its training, as JSON-ready values."""

    model: nn.Module
    record: dict[str, Any]


Method = Callable[[Task], Outcome]


def by_name() -> dict[str, Method]:
    """Every method by the name that the tables use."""
    from paper.methods import buffer, gcn

    return {"GCN": gcn.train, "GCN_B paper": buffer.paper}
