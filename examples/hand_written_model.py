"""A model of your own, called in its own way: it takes a Data, swaps arguments and returns more than logits."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv

import aggbuffer as ab


class Net(nn.Module):
    """An encoder, two different convolutions with a residual connection, and a head."""

    def __init__(self, features: int, classes: int, hidden: int = 32) -> None:
        super().__init__()
        self.encoder = nn.Linear(features, hidden)
        self.first = GCNConv(hidden, hidden)
        self.second = SAGEConv(hidden, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, edges: Tensor, graph: Data) -> tuple[Tensor, Tensor]:
        h = self.encoder(graph.x).relu()
        h = h + self.first(h, edges).relu()
        # Dropout must follow self.training; attach refuses a model whose answers change from call to call.
        h = nn.functional.dropout(h, 0.5, training=self.training)
        h = self.second(h, edges).relu()
        return self.head(h), h


def call(model: nn.Module, data: Data) -> Tensor:
    """How the library gets logits ``[N, C]`` out of the model, also on graphs whose edges it has changed."""
    logits, _ = model(data.edge_index, data)
    return logits


def train(gnn: Net, data: Data) -> None:
    optimizer = torch.optim.Adam(gnn.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(150):
        optimizer.zero_grad()
        logits = call(gnn, data)
        nn.functional.cross_entropy(logits[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()


def main() -> None:
    torch.manual_seed(0)
    data = ab.data.demo_graph()
    gnn = Net(data.num_features, 10)
    train(gnn, data)

    model = ab.attach(gnn, data, forward=call)
    for layer in model.layers:
        print(f"found {layer.name}: reads {layer.in_width}, its buffer adds {layer.out_width} columns")
    with torch.no_grad():
        logits, _ = model(data.edge_index, data)  # called as the base is
    print("before fitting it answers as the base, to the bit:", torch.equal(logits, call(gnn.eval(), data)))

    before = ab.evaluate(model, data)
    ab.fit(model, data, max_epochs=200, progress=False)
    change = ab.compare(before, ab.evaluate(model, data))["0 % of edges"]
    print(f"accuracy without any edge: {change.before.accuracy:.1%} -> {change.after.accuracy:.1%}")

    print("detached, it is the very object:", ab.detach(model) is gnn)


if __name__ == "__main__":
    main()
