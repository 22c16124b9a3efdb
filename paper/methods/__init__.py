"""The methods that the paper compares, one a file. Each turns a split into a model that can be evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from torch_geometric.data import Data

from paper.settings import BaseSettings, BufferSettings


@dataclass(frozen=True)
class Task:
    """One split of one graph, and the settings to use on it.

    Attributes:
        dataset: The graph's name.
        split: Which split; also the seed.
        data: With the split's masks.
        bases: Folder in which trained base models are kept for other methods.
        base: Of the base model.
        buffer: Of its buffer.
        params: The method's own hyperparameters, by the names that its file gives them; its defaults where absent.
    """

    dataset: str
    split: int
    data: Data
    bases: Path
    base: BaseSettings
    buffer: BufferSettings
    params: Mapping[str, Any]

    def merged(self, **defaults: Any) -> dict[str, Any]:
        """The method's hyperparameters: ``params`` over its defaults.

        Raises:
            ValueError: For a name that the method does not know.
        """
        if unknown := sorted(set(self.params) - set(defaults)):
            raise ValueError(f"there is no hyperparameter {unknown[0]!r}; there are {', '.join(defaults) or 'none'}")
        return {**defaults, **self.params}


@dataclass(frozen=True)
class Outcome:
    """A trained model and what is worth recording of its training, as JSON-ready values."""

    model: nn.Module
    record: dict[str, Any]


Method = Callable[[Task], Outcome]


def by_name() -> dict[str, Method]:
    """Every method by the name that the tables use."""
    from paper.methods import buffer, components, dropedge, dropmessage, dropnode, gcn, graphpatcher, mlp, tuneup

    return {
        "MLP": mlp.train,
        "GCN": gcn.train,
        "DropEdge": dropedge.train,
        "DropNode": dropnode.train,
        "DropMessage": dropmessage.train,
        "TUNEUP": tuneup.train_twice,
        "GraphPatcher": graphpatcher.train,
        **{name: variant.train for name, variant in buffer.VARIANTS.items()},
        "minus freezing": components.minus_freezing,
        "minus block": components.minus_block,
        "minus pre-training": components.minus_pre_training,
    }
