"""DropEdge: every training step sees a graph without a random share of its edges."""

from __future__ import annotations

import torch

from aggbuffer.fast.runner import FastLayers
from aggbuffer.fast.views import View
from aggbuffer.perturb import keep_mask
from paper.bases import Augmentation
from paper.methods import Outcome, Task, gcn


class DropEdge(Augmentation):
    """Both directions of an edge go together; self-loops and the normalisation are those of what is left.

    Args:
        share: Of the edges, in [0, 1].
    """

    def __init__(self, share: float) -> None:
        self.share = share

    def view(self, layers: FastLayers, generator: torch.Generator) -> View:
        return layers.only(keep_mask(layers.graph, self.share, generator), "together")


def train(task: Task) -> Outcome:
    """With ``drop``, the share of edges that a step loses."""
    params = task.merged(drop=0.5)
    return gcn.supervised(task, "DropEdge", task.base, DropEdge(params["drop"]), params)
