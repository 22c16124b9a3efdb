"""Several labels at once: a 0/1 matrix in data.y is enough, loss and scores follow from it."""

from __future__ import annotations

import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import aggbuffer as ab

NODES, LABELS, FEATURES = 800, 5, 20


def interests(seed: int = 0) -> Data:
    """Generated: people with several interests each, who know those that share some."""
    draw = torch.Generator().manual_seed(seed)
    y = (torch.rand(NODES, LABELS, generator=draw) < 0.3).float()
    x = y @ torch.randn(LABELS, FEATURES, generator=draw) + 1.5 * torch.randn(NODES, FEATURES, generator=draw)
    source, target = torch.randint(NODES, (2, 20 * NODES), generator=draw)
    shared = (y[source] * y[target]).sum(1) / y.sum(1)[source].clamp(min=1)
    wanted = (torch.rand(len(source), generator=draw) < 0.05 + 0.6 * shared) & (source < target)
    one_way = torch.unique(torch.stack([source, target])[:, wanted], dim=1)
    part = torch.randperm(NODES, generator=draw) % 4
    masks = {"train_mask": part == 0, "val_mask": part == 1, "test_mask": part > 1}
    return Data(x=x, y=y, edge_index=torch.cat([one_way, one_way.flip(0)], dim=1), **masks)


def main() -> None:
    torch.manual_seed(0)
    data = interests()
    gnn = GCN(FEATURES, 32, num_layers=2, out_channels=LABELS)
    optimizer = torch.optim.Adam(gnn.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        logits = gnn(data.x, data.edge_index)[data.train_mask]
        torch.nn.functional.binary_cross_entropy_with_logits(logits, data.y[data.train_mask]).backward()
        optimizer.step()

    before = ab.evaluate(gnn, data)
    print(f"task: {before.task}; accuracy is the share of right labels")
    model = ab.attach(gnn, data)
    ab.fit(model, data, max_epochs=200, progress=False)
    comparison = ab.compare(before, ab.evaluate(model, data))
    for name in ("overall", "50 % of edges", "0 % of edges"):
        change = comparison[name]
        print(
            f"{name}: accuracy {change.before.accuracy:.1%} -> {change.after.accuracy:.1%}, "
            f"macro-F1 {change.before.macro_f1:.1%} -> {change.after.macro_f1:.1%}"
        )


if __name__ == "__main__":
    main()
