"""The base models of the paper and how they are trained: Adam, stopped on validation accuracy."""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from aggbuffer.fast.runner import FastLayers, fast_forms
from aggbuffer.graph import Graph
from aggbuffer.perturb import dropout
from paper.settings import BaseSettings


class GCN(nn.Module):
    """Convolution, ReLU and dropout; optionally with residual connections and LayerNorm, as for Chameleon and Squirrel.

    Args:
        in_width: F.
        out_width: C.
        settings: Widths, depth and dropout.
        generator: Of the dropout.
    """

    def __init__(self, in_width: int, out_width: int, settings: BaseSettings, generator: torch.Generator) -> None:
        super().__init__()
        if settings.aggregation != "sym":
            raise NotImplementedError("random-walk normalisation is not built yet: WikiCS and ogbn-arxiv need it")
        widths = [in_width, *[settings.hidden] * (settings.layers - 1), out_width]
        pairs = list(itertools.pairwise(widths))
        self.convs = nn.ModuleList(GCNConv(i, o) for i, o in pairs)
        self.residuals = nn.ModuleList(nn.Linear(i, o, bias=False) for i, o in pairs if settings.residual)
        self.norms = nn.ModuleList(nn.LayerNorm(o) for _, o in pairs[:-1] if settings.residual)
        self.dropout, self.generator = settings.dropout, generator

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits ``[N, C]``."""
        for i, conv in enumerate(self.convs):
            out = conv(x, edge_index)
            if self.residuals:
                out = out + self.residuals[i](x)
            if i < len(self.convs) - 1:
                out = F.relu(self.norms[i](out) if self.norms else out)
                if self.training and self.dropout:
                    out = dropout(out, self.dropout, self.generator)
            x = out
        return x


@dataclass(frozen=True)
class Trained:
    """A base model and how its training went."""

    gnn: nn.Module
    epochs: int
    best_epoch: int
    val_accuracy: float


def train_gcn(data: Data, settings: BaseSettings, seed: int) -> Trained:
    """Train the base GCN; the state with the best validation accuracy is returned.

    Args:
        data: With labels, ``train_mask`` and ``val_mask``.
        settings: Hyperparameters.
        seed: Of the initial weights and the dropout.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        gnn = GCN(data.num_features, int(data.y.max()) + 1, settings, generator)
    optimizer = torch.optim.Adam(gnn.parameters(), lr=settings.lr, weight_decay=settings.weight_decay, fused=True)
    layers = FastLayers(Graph.of(data))
    best, best_epoch, best_state, epoch = -1.0, 0, copy.deepcopy(gnn.state_dict()), 0
    with layers.installed(fast_forms(gnn)), layers.over(layers.whole):
        while epoch < settings.max_epochs and epoch - best_epoch < settings.patience:
            epoch += 1
            gnn.train()
            loss = F.cross_entropy(gnn(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            gnn.eval()
            with torch.no_grad():
                right = gnn(data.x, data.edge_index).argmax(-1) == data.y
            accuracy = right[data.val_mask].float().mean().item()
            if accuracy > best:
                best, best_epoch, best_state = accuracy, epoch, copy.deepcopy(gnn.state_dict())
    gnn.load_state_dict(best_state)
    return Trained(gnn.eval(), epoch, best_epoch, best)
