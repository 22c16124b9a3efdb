"""The base models."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

from aggbuffer.interop import BiasFirstSGConv
from aggbuffer.perturb import dropout
from paper.bases.convs import GraphFree, LinearGINConv, RandomWalkConv
from paper.settings import BaseSettings

HEADS = 8  # of a GAT, in every layer but the last

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "elu": F.elu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


class GNN(nn.Module):
    """Convolution, activation and dropout; optionally with residual connections and LayerNorm.

    Args:
        in_width: F.
        out_width: C.
        settings: Kind of layers, widths, depth and dropout.
    """

    def __init__(self, in_width: int, out_width: int, settings: BaseSettings) -> None:
        super().__init__()
        depth = 1 if settings.architecture == "sgc" else settings.layers
        widths = [in_width, *[settings.hidden] * (depth - 1), out_width]
        pairs = list(itertools.pairwise(widths))
        last = len(pairs) - 1
        self.convs = nn.ModuleList(_conv(i, o, settings, k == last) for k, (i, o) in enumerate(pairs))
        self.residuals = nn.ModuleList(GraphFree(i, o, bias=False) for i, o in pairs if settings.residual)
        self.norms = nn.ModuleList(nn.LayerNorm(o) for _, o in pairs[:-1] if settings.residual)
        self.settings = settings
        self.activation = _ACTIVATIONS[settings.activation]
        self.generator: torch.Generator | None = None  # of the dropout, while the model trains

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits ``[N, C]``."""
        for i, conv in enumerate(self.convs):
            out = conv(x, edge_index)
            if self.residuals:
                out = out + self.residuals[i](x, edge_index)
            if i < len(self.convs) - 1:
                out = self.activation(self.norms[i](out) if self.norms else out)
                if self.training and self.settings.dropout:
                    out = dropout(out, self.settings.dropout, self.generator)
            x = out
        return x


def new(data: Data, settings: BaseSettings, seed: int) -> GNN:
    """A base model for a graph, with the initial weights of a seed; the global random state stays."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GNN(data.num_features, int(data.y.max()) + 1, settings)


def _conv(in_width: int, out_width: int, settings: BaseSettings, is_last: bool) -> nn.Module:
    match settings.architecture:
        case "gcn":
            return (GCNConv if settings.aggregation == "sym" else RandomWalkConv)(in_width, out_width)
        case "mlp":
            return GraphFree(in_width, out_width)
        case "sage":
            return SAGEConv(in_width, out_width)
        case "gat":
            heads = 1 if is_last else HEADS
            return GATConv(in_width, out_width // heads, heads)
        case "sgc":
            return BiasFirstSGConv(in_width, out_width, K=settings.layers)
        case "gin":
            return LinearGINConv(in_width, out_width)
