"""One supervised training loop for every method that trains a whole GNN: Adam, stopped on validation accuracy."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from aggbuffer.fast.layers import FastForm
from aggbuffer.fast.memory import kept_between_steps
from aggbuffer.fast.runner import FastLayers
from aggbuffer.fast.views import View
from aggbuffer.graph import Graph
from paper.bases.convs import fast_forms
from paper.bases.models import GNN, new
from paper.settings import BaseSettings


class Augmentation:
    """What a method does to its training steps; the base model does nothing. Evaluation always sees the whole graph."""

    def forms(self, gnn: GNN) -> dict[nn.Module, FastForm]:
        """How the model's layers run over a view."""
        return fast_forms(gnn)

    def view(self, layers: FastLayers, generator: torch.Generator) -> View:
        """The graph of one training step."""
        return layers.whole


@dataclass(frozen=True)
class Trained:
    """A trained model and how its training went."""

    gnn: GNN
    epochs: int
    best_epoch: int
    val_accuracy: float
    seconds: float

    def record(self) -> dict[str, Any]:
        """All but the model, JSON-ready."""
        return {name: value for name, value in vars(self).items() if name != "gnn"}


def train_new(data: Data, settings: BaseSettings, seed: int, augmentation: Augmentation | None = None) -> Trained:
    """Train a model from its first weights.

    Args:
        data: With labels, ``train_mask`` and ``val_mask``.
        settings: Hyperparameters.
        seed: Of the initial weights, the dropout and the augmentation.
        augmentation: Of the training steps.
    """
    generator = torch.Generator().manual_seed(seed)
    return train(new(data, settings, seed), data, settings, generator, augmentation)


def train(
    gnn: GNN,
    data: Data,
    settings: BaseSettings,
    generator: torch.Generator,
    augmentation: Augmentation | None = None,
    *,
    targets: Tensor | None = None,
    nodes: Tensor | None = None,
) -> Trained:
    """Train in place; the state with the best validation accuracy is in the model afterwards.

    Args:
        gnn: The model.
        data: With labels, ``train_mask`` and ``val_mask``.
        settings: Learning rate, weight decay and when to stop.
        generator: Of everything random.
        augmentation: Of the training steps.
        targets: ``[N]`` classes to learn; the labels by default.
        nodes: ``[N]`` bool, the nodes to learn them on; the training nodes by default.
    """
    started = time.monotonic()
    augmentation = augmentation or Augmentation()
    targets = data.y if targets is None else targets
    nodes = (data.train_mask if nodes is None else nodes).nonzero().squeeze(-1)
    optimizer = torch.optim.Adam(gnn.parameters(), lr=settings.lr, weight_decay=settings.weight_decay, fused=True)
    layers = FastLayers(Graph.of(data))
    best, best_epoch, best_state, epoch = -1.0, 0, copy.deepcopy(gnn.state_dict()), 0
    gnn.generator = generator
    with kept_between_steps(), layers.installed(augmentation.forms(gnn)):
        while epoch < settings.max_epochs and epoch - best_epoch < settings.patience:
            epoch += 1
            gnn.train()
            view = augmentation.view(layers, generator)
            with layers.over(view):
                logits = gnn(data.x, view.edges)
            loss = F.cross_entropy(logits[nodes], targets[nodes])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            accuracy = _accuracy(gnn, data, layers)
            if accuracy > best:
                best, best_epoch, best_state = accuracy, epoch, copy.deepcopy(gnn.state_dict())
    gnn.load_state_dict(best_state)
    gnn.generator = None
    return Trained(gnn.eval(), epoch, best_epoch, best, time.monotonic() - started)


def _accuracy(gnn: GNN, data: Data, layers: FastLayers) -> float:
    """On the validation nodes of the whole graph."""
    gnn.eval()
    with torch.no_grad(), layers.over(layers.whole):
        right = gnn(data.x, layers.whole.edges).argmax(-1) == data.y
    return right[data.val_mask].float().mean().item()
