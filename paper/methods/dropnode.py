"""DropNode: every training step drops a random share of the rows of every layer's input."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from aggbuffer.fast.layers import FastForm, Pass
from aggbuffer.fast.runner import FastLayers
from aggbuffer.fast.views import Norm, View
from paper.bases import GNN, Augmentation
from paper.bases.convs import GraphFree
from paper.methods import Outcome, Task, gcn


class DropNode(Augmentation):
    """Dropping rows of ``x`` drops the same rows of ``x W``, which keeps the features' product a sparse one.

    Args:
        share: Of the rows, in [0, 1]; with 1 nothing of the input is left.
    """

    def __init__(self, share: float) -> None:
        self.share = share

    def view(self, layers: FastLayers, generator: torch.Generator) -> View:
        return _WithoutRows(layers.whole, self.share, generator)

    def forms(self, gnn: GNN) -> dict[nn.Module, FastForm]:
        return super().forms(gnn) | {residual: _residual(residual) for residual in gnn.residuals}


class _WithoutRows(View):
    """The whole graph, of whose nodes every layer sees others."""

    def __init__(self, whole: View, share: float, generator: torch.Generator) -> None:
        super().__init__(whole.graph, whole.patterns, None, whole.data, symmetric=whole.symmetric)
        self.whole, self.share, self.generator = whole, share, generator
        self.rows = torch.empty(0)  # of the layer that ran last, [N, 1]

    def propagate(self, x: Tensor, norm: Norm, *, loops: bool) -> Tensor:
        self.rows = row_scale(x.size(0), self.share, self.generator).to(x.dtype)
        return self.whole.propagate(x * self.rows, norm, loops=loops)


def row_scale(count: int, share: float, generator: torch.Generator) -> Tensor:
    """0 for the rows that are dropped and 1 / (1 - share) for the others, ``[count, 1]``."""
    kept = torch.rand(count, 1, generator=generator) >= share
    return kept / (1 - share) if share < 1 else kept.float()


def _residual(residual: GraphFree) -> FastForm:
    """A residual connection over the same input as the convolution that ran just before it."""

    def form(p: Pass, x: Tensor) -> Tensor:
        out = residual.fast_form(p, x)
        return out * p.view.rows if isinstance(p.view, _WithoutRows) else out

    return form


def train(task: Task) -> Outcome:
    """With ``drop``, the share of rows."""
    params = task.merged(drop=0.5)
    outcome = gcn.supervised(task, "DropNode", task.base, DropNode(params["drop"]), params)
    return Outcome(outcome.model, outcome.record | {"degenerate": params["drop"] == 1})
