"""The generator of virtual neighbours, and a frozen GNN that is helped by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import GCNConv

from aggbuffer.fast.features import Features
from aggbuffer.perturb import dropout
from paper.bases import GNN
from paper.methods.graphpatcher.local import Net, Seen, Surroundings, answers, random_walk, symmetric


class Generator(nn.Module):
    """A two-layer GCN over the anchor's surroundings, then an MLP of three layers with the anchor's own features.

    Args:
        features: F.
        hidden: Width of all its layers.
        dropout: Of every hidden layer, while it trains.
    """

    def __init__(self, features: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Linear(features, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.seen = nn.Linear(hidden, hidden)  # with `own`, the MLP's first layer, on the two halves of its input
        self.own = nn.Linear(features, hidden, bias=False)
        self.inner = nn.Linear(hidden, hidden)
        self.last = nn.Linear(hidden, features)
        self.dropout = dropout
        self.generator: torch.Generator | None = None  # of the dropout, while it trains

    def net(self) -> Net:
        """Its GCN."""
        first, second = self.first, self.second
        return Net(first.weight, lambda h: self._hidden(h + first.bias), lambda h, _: second(h), symmetric)

    def code(self, seen: Tensor, own: Tensor) -> Tensor:
        """The MLP before its last layer, ``[B, hidden]``, from the GCN's answers and ``x own.weight.T``."""
        return self._hidden(self.inner(self._hidden(self.seen(seen) + own)))

    def _hidden(self, h: Tensor) -> Tensor:
        h = h.relu()
        return dropout(h, self.dropout, self.generator) if self.training and self.dropout else h


def read(gnn: GNN) -> Net:
    """A trained two-layer GCN.

    Raises:
        ValueError: For any other model.
    """
    settings = gnn.settings
    if settings.architecture != "gcn" or settings.layers != 2:
        raise ValueError(f"GraphPatcher is written for a GCN of two layers, not for {settings}")
    first, second = (cast(Any, conv) for conv in gnn.convs)
    residuals = [cast(Any, residual).weight for residual in gnn.residuals]

    def hidden(h: Tensor) -> Tensor:
        h = h + first.bias
        return gnn.activation(gnn.norms[0](h) if gnn.norms else h)

    def output(aggregated: Tensor, own: Tensor) -> Tensor:
        out = F.linear(aggregated, second.lin.weight, second.bias)
        return out + own @ residuals[1].t() if residuals else out

    by_degree = symmetric if isinstance(first, GCNConv) else random_walk
    maps = torch.cat([first.lin.weight, *residuals[:1]]).detach()
    return Net(maps, hidden, output, by_degree, bool(residuals))


class PatchedGNN(nn.Module):
    """A frozen GNN whose every answer is the one at an anchor with virtual neighbours of its own.

    Args:
        gnn: A two-layer GCN.
        generator: Of the neighbours.
        patches: How many each node gets.
    """

    def __init__(self, gnn: GNN, generator: Generator, patches: int) -> None:
        super().__init__()
        self.gnn, self.generator, self.patches = gnn, generator, patches
        self._features: Features | None = None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits ``[N, C]``."""
        return self.patched(x, edge_index, torch.arange(x.size(0)), [self.patches])[0]

    @torch.no_grad()
    def patched(self, x: Tensor, edge_index: Tensor, nodes: Tensor, counts: Sequence[int]) -> Tensor:
        """Logits of some nodes with each of these numbers of virtual neighbours, ``[len(counts), nodes, C]``.

        The features of a virtual neighbour are never made: both nets start with a linear map, which goes together with
        the generator's last layer.
        """
        net, made_by = read(self.gnn), self.generator.net()
        features = self._kept(x)
        around = Surroundings(edge_index, x.size(0))
        seen = Seen.of(net, features @ net.maps.t(), around)
        seen_by_generator = Seen.of(made_by, features @ made_by.maps.t(), around)
        own = features @ self.generator.own.weight.t()
        last = self.generator.last
        into = torch.cat([net.maps, made_by.maps])
        weight, bias, split = into @ last.weight, into @ last.bias, net.maps.size(0)
        results = []
        for part, ego in around.chunks(nodes):
            kept = torch.ones(ego.near.numel(), 1)
            virtual = x.new_empty(nodes[part].numel(), 0, into.size(0))
            by_count = {}
            for count in range(max(counts) + 1):
                if count in counts:
                    by_count[count] = answers(net, seen, ego, kept, virtual[..., :split])
                if count < max(counts):
                    read_out = answers(made_by, seen_by_generator, ego, kept, virtual[..., split:])
                    made = F.linear(self.generator.code(read_out, own[nodes[part]]), weight, bias)
                    virtual = torch.cat([virtual, made.unsqueeze(1)], dim=1)
            results.append(torch.stack([by_count[count] for count in counts]))
        return torch.cat(results, dim=1)

    def _kept(self, x: Tensor) -> Features:
        if self._features is None or self._features.x is not x:
            self._features = Features(x)
        return self._features
