"""Look at a base model while it trains, without changing how it does."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aggbuffer.fast.layers import FastForm
from aggbuffer.fast.runner import FastLayers
from aggbuffer.fast.views import View
from aggbuffer.losses import divergence
from aggbuffer.perturb import keep_mask
from paper.bases import GNN, Augmentation

Observe = Callable[[int, Tensor, Tensor], None]
"""Called with the epoch and logits on the whole and on a perturbed graph, each ``[N, C]``."""


class Watched(Augmentation):
    """Another augmentation, and between two of its steps a look at the model on the whole graph and under DropEdge.

    The look has draws of its own: the training is the same to the bit as without it.

    Args:
        inner: What the training steps do.
        share: Of edges that the perturbed graph loses.
        every: Epochs between two looks.
        observe: What to do with the logits.
        seed: Of the perturbed graphs.
    """

    def __init__(self, inner: Augmentation, share: float, every: int, observe: Observe, seed: int) -> None:
        self.inner, self.share, self.every, self.observe = inner, share, every, observe
        self.generator = torch.Generator().manual_seed(seed)
        self.epoch = 0

    def forms(self, gnn: GNN) -> dict[nn.Module, FastForm]:
        self.gnn = gnn
        return self.inner.forms(gnn)

    def view(self, layers: FastLayers, generator: torch.Generator) -> View:
        if self.epoch % self.every == 0:
            perturbed = layers.only(keep_mask(layers.graph, self.share, self.generator), "together")
            self.observe(self.epoch, self._logits(layers, layers.whole), self._logits(layers, perturbed))
        self.epoch += 1
        return self.inner.view(layers, generator)

    def _logits(self, layers: FastLayers, view: View) -> Tensor:
        self.gnn.eval()
        with torch.no_grad(), layers.over(view):
            logits: Tensor = self.gnn(layers.graph.x, view.edges)
        self.gnn.train()
        return logits


def terms(clean: Tensor, perturbed: Tensor, labels: Tensor) -> dict[str, float]:
    """What the paper's loss is made of, as means over nodes.

    Args:
        clean: Logits on the whole graph, ``[M, C]``.
        perturbed: Logits on a perturbed one, ``[M, C]``.
        labels: Classes, ``[M]``.

    Returns:
        ``bias``, which is the cross-entropy; ``robust``, with the model's own prediction in the truth's place;
        ``robust_by_label``, with the label there; and ``accuracy``.
    """
    whole, part = F.cross_entropy(clean, labels).item(), F.cross_entropy(perturbed, labels).item()
    found = {
        "bias": whole,
        "robust": divergence(clean, perturbed, "multiclass").mean().item(),
        "robust_by_label": part - whole,
        "accuracy": (clean.argmax(-1) == labels).float().mean().item(),
    }
    return {name: round(value, 5) for name, value in found.items()}
