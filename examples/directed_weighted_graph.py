"""A directed graph with edge weights: nothing to convert, and the degree may sum weights instead of counting edges."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GraphConv, Sequential

import aggbuffer as ab

NODES, CLASSES, FEATURES = 600, 4, 16


def citations(seed: int = 0) -> Data:
    """Generated: every node points at some others, mostly of its class, and trusts those more."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (NODES,), generator=draw)
    x = torch.randn(NODES, FEATURES, generator=draw) + 1.2 * torch.eye(CLASSES, FEATURES)[y]
    source, target = torch.randint(NODES, (2, 12 * NODES), generator=draw)
    alike = y[source] == y[target]
    wanted = (alike | (torch.rand(len(source), generator=draw) < 0.2)) & (source != target)
    edges = torch.unique(torch.stack([source, target])[:, wanted], dim=1)
    weight = torch.rand(edges.size(1), generator=draw) + (y[edges[0]] == y[edges[1]]).float()
    part = torch.randperm(NODES, generator=draw) % 4
    masks = {"train_mask": part == 0, "val_mask": part == 1, "test_mask": part > 1}
    return Data(x=x, y=y, edge_index=edges, edge_weight=weight, **masks)


def build() -> torch.nn.Module:
    """Its signature names edge_weight, so the library passes that along by itself."""
    layers = [
        (GraphConv(FEATURES, 32, aggr="mean"), "x, edge_index, edge_weight -> x"),
        torch.nn.ReLU(),
        (GraphConv(32, CLASSES, aggr="mean"), "x, edge_index, edge_weight -> x"),
    ]
    return Sequential("x, edge_index, edge_weight", layers)


def train(gnn: torch.nn.Module, data: Data) -> None:
    optimizer = torch.optim.Adam(gnn.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(60):
        optimizer.zero_grad()
        logits: Tensor = gnn(data.x, data.edge_index, data.edge_weight)
        torch.nn.functional.cross_entropy(logits[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()


def main() -> None:
    torch.manual_seed(0)
    data = citations()
    gnn = build()
    train(gnn, data)
    before = ab.evaluate(gnn, data)

    for weighted in (False, True):
        model = ab.attach(gnn, data, ab.BufferConfig(weighted_degree=weighted))
        # Directed edges have no reverse, so each is dropped by itself, together with its weight.
        ab.fit(model, data, max_epochs=150, progress=False)
        change = ab.compare(before, ab.evaluate(model, data))["0 % of edges"]
        told = "sums weights" if weighted else "counts edges"
        print(f"degree {told}: without edges {change.before.accuracy:.1%} -> {change.after.accuracy:.1%}")
        ab.detach(model)


if __name__ == "__main__":
    main()
