"""Hyperparameters: those of the paper's appendix (Table 5 for the base GCN, Table 6 for its buffer), and the grids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Architecture = Literal["gcn", "mlp", "sage", "gat", "sgc", "gin"]
Activation = Literal["relu", "elu", "sigmoid", "tanh"]


@dataclass(frozen=True)
class BaseSettings:
    """What a base model is and how it is trained.

    Attributes:
        hidden: Width of the hidden layers; of all heads together for a GAT.
        lr: Adam's learning rate.
        weight_decay: Adam's weight decay.
        dropout: Between the layers.
        aggregation: Symmetric or random-walk normalisation of a GCN.
        residual: Residual connections and LayerNorm, which the two filtered heterophilous graphs need.
        layers: Depth; how many hops for an SGC, which has one layer.
        patience: Epochs without a better validation accuracy.
        max_epochs: The most epochs.
        architecture: Which kind of layer.
        activation: Between the layers.
    """

    hidden: int
    lr: float
    weight_decay: float
    dropout: float
    aggregation: Literal["sym", "rw"] = "sym"
    residual: bool = False
    layers: int = 2
    patience: int = 100
    max_epochs: int = 2000
    architecture: Architecture = "gcn"
    activation: Activation = "relu"


@dataclass(frozen=True)
class BufferSettings:
    """How its buffer is trained."""

    strength: float
    dropout: float
    drop_edge: float


BASE = {
    "Cora": BaseSettings(512, 1e-2, 5e-4, 0.5),
    "CiteSeer": BaseSettings(512, 1e-2, 5e-4, 0.7),
    "PubMed": BaseSettings(512, 1e-2, 5e-4, 0.7),
    "WikiCS": BaseSettings(512, 1e-2, 5e-4, 0.3, "rw"),
    "Photo": BaseSettings(512, 1e-2, 5e-4, 0.5),
    "Computers": BaseSettings(512, 1e-2, 5e-4, 0.3),
    "CS": BaseSettings(256, 1e-3, 5e-4, 0.2),
    "Physics": BaseSettings(64, 1e-3, 5e-5, 0.5),
    "ogbn-arxiv": BaseSettings(512, 1e-2, 5e-5, 0.5, "rw"),
    "Actor": BaseSettings(64, 1e-3, 5e-4, 0.7),
    "Squirrel": BaseSettings(256, 1e-2, 5e-4, 0.2, residual=True),
    "Chameleon": BaseSettings(256, 1e-2, 5e-4, 0.2, residual=True),
}

BUFFER = {
    "Cora": BufferSettings(0.5, 0.7, 0.5),
    "CiteSeer": BufferSettings(1.0, 0.7, 0.2),
    "PubMed": BufferSettings(0.5, 0.0, 0.2),
    "WikiCS": BufferSettings(0.5, 0.5, 0.2),
    "Photo": BufferSettings(1.0, 0.0, 0.5),
    "Computers": BufferSettings(0.5, 0.2, 0.5),
    "CS": BufferSettings(0.1, 0.7, 0.2),
    "Physics": BufferSettings(1.0, 0.7, 0.2),
    "ogbn-arxiv": BufferSettings(0.5, 0.0, 0.5),
    "Actor": BufferSettings(0.5, 0.2, 0.5),
    "Squirrel": BufferSettings(0.1, 0.2, 0.7),
    "Chameleon": BufferSettings(0.1, 0.0, 0.7),
}

_TENTHS = tuple(n / 10 for n in range(1, 11))
_TUNED: dict[str, tuple[Any, ...]] = {
    "lr": (1e-2, 1e-3, 5e-3),
    "dropout": (0.2, 0.3, 0.5, 0.7),
    "weight_decay": (0.0, 5e-4, 5e-5),
}

# What the paper searched, by the name that `Task.params` of each method takes; "base" is the base model itself.
GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "base": {"hidden": (64, 256, 512), **_TUNED, "aggregation": ("sym", "rw")},
    "MLP": {"hidden": (64, 256, 512), **_TUNED},
    "DropEdge": {"drop": _TENTHS},
    "DropNode": {"drop": _TENTHS},
    "DropMessage": {"drop": _TENTHS},
    "TUNEUP": {"drop_edge": _TENTHS, **_TUNED},
    "GraphPatcher": {"batch": (32, 64), "patience": (10, 30)},
    "GCN_B paper": {"strength": (1.0, 0.5, 0.1), "drop_edge": (0.2, 0.5, 0.7, 1.0), "dropout": (0.0, 0.2, 0.5, 0.7)},
}
