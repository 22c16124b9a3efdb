"""Training with L_RC of more than the buffers, or of something else than the buffers: what ``ab.fit`` does not do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import aggbuffer as ab
from aggbuffer.fast.memory import kept_between_steps
from aggbuffer.fast.passes import FastPasses
from aggbuffer.graph import Graph
from aggbuffer.losses import LossFunction
from aggbuffer.training import Training
from paper.bases import GNN


class _LearningPasses(FastPasses):
    """The fast passes without what is constant only while the base is frozen."""

    def _constants_of(self, conv: nn.Module) -> Callable[[str, Callable[[], Tensor]], Tensor] | None:
        return None


def fit(
    model: ab.BufferedGNN,
    data: Data,
    config: ab.FitConfig,
    parameters: Sequence[nn.Parameter],
    *,
    loss: LossFunction | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> ab.FitResult:
    """Train the given parameters of a model with buffers, and stop, as ``ab.fit`` trains the buffers.

    Args:
        model: Buffers that are not among ``parameters`` stay zero, which is a model without them.
        data: With labels, ``train_mask`` and ``val_mask``. The bias term stays with what the base answers now.
        config: As for ``ab.fit``.
        parameters: What trains.
        loss: Instead of the one that ``config`` names.
        optimizer: Over ``parameters``, instead of ``ab.fit``'s.
    """
    for parameter in parameters:
        parameter.requires_grad_(True)
    with torch.enable_grad(), kept_between_steps():
        training = Training(model, Graph.of(data), config, "train_mask", "val_mask", loss, None)
        training.parameters = list(parameters)
        training.passes = _LearningPasses(model, training.graph)
        training.optimizer = optimizer or torch.optim.Adam(parameters, lr=config.lr, fused=True)
        return training.run(None, checkpoint_every=0.0, callbacks=[])


def norms_of(base: nn.Module) -> list[nn.Parameter]:
    """The parameters of a base's LayerNorms, which the authors' code trains along by accident."""
    assert isinstance(base, GNN)
    return list(base.norms.parameters())
