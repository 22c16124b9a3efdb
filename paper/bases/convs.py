"""The layers that PyG lacks or has in a costlier order, and how each runs over a view of the graph.

A layer's fast form computes what its ``forward`` does, over the library's sorted edges.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch_geometric.nn import Linear, MessagePassing
from torch_geometric.utils import add_remaining_self_loops

from aggbuffer.fast.layers import FastForm, Pass, fast_form
from aggbuffer.interop import BiasFirstSGConv


class RandomWalkConv(MessagePassing):
    """``D⁻¹ A X W + b`` with a self-loop at every node: the mean over a node and its neighbours.

    Args:
        in_channels: Width of ``x``.
        out_channels: Width of the result.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(aggr="mean")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.lin = Linear(in_channels, out_channels, bias=False, weight_initializer="glorot")
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """``[N, out_channels]``."""
        edges = add_remaining_self_loops(edge_index, num_nodes=x.size(0))[0]
        return cast(Tensor, self.propagate(edges, x=self.lin(x))) + self.bias

    def fast_form(self, p: Pass, x: Tensor) -> Tensor:
        return p.mapped_aggregation(x, self.lin, self.bias, "mean", loops=True)


class LinearGINConv(MessagePassing):
    """GIN whose MLP is one linear layer, as the authors have it: ``((1 + ε) X + A X) W + b``, with the map first.

    A wide X is then never aggregated, and a buffer acts on the layer's output.

    Args:
        in_channels: Width of ``x``.
        out_channels: Width of the result.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(aggr="add")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.lin = Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_channels))
        self.eps = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """``[N, out_channels]``."""
        mapped = self.lin(x)
        return cast(Tensor, self.propagate(edge_index, x=mapped)) + (1 + self.eps) * mapped + self.bias

    def fast_form(self, p: Pass, x: Tensor) -> Tensor:
        mapped = p.mapped(x, cast(Tensor, self.lin.weight))
        return p.view.propagate(mapped, "sum", loops=False) + (1 + self.eps) * mapped + self.bias


class GraphFree(nn.Linear):
    """A linear layer that is called like a convolution: an MLP's layer, or a residual connection."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """``[N, out_features]``."""
        return super().forward(x)

    def fast_form(self, p: Pass, x: Tensor) -> Tensor:
        mapped = p.mapped(x, self.weight)
        return mapped if self.bias is None else mapped + self.bias


def fast_forms(gnn: nn.Module) -> dict[nn.Module, FastForm]:
    """The layers of a base model that can run over a view, and how."""
    forms: dict[nn.Module, FastForm] = {}
    for module in gnn.modules():
        if isinstance(module, GraphFree):
            forms[module] = module.fast_form
        elif isinstance(module, BiasFirstSGConv):
            forms[module] = _sgc(module)
        elif (form := fast_form(module)) is not None:
            forms[module] = form
    return forms


def _sgc(conv: BiasFirstSGConv) -> FastForm:
    def form(p: Pass, x: Tensor) -> Tensor:
        out = p.mapped(x, conv.lin.weight) + conv.lin.bias
        for _ in range(conv.K):
            out = p.view.propagate(out, "sym", loops=True)
        return out

    return form
