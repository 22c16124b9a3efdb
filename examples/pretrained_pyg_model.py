"""A model that was trained elsewhere: read its weights, add buffers, fit them, save them, load them again."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

import aggbuffer as ab


def build(data: Data) -> GraphSAGE:
    """The architecture, which has to be the same on both sides of the file."""
    return GraphSAGE(data.num_features, 64, num_layers=2, out_channels=10, dropout=0.5)


def pretrain(data: Data, path: Path) -> None:
    """What somebody else did before: train the model without any thought of missing edges, and save its weights."""
    torch.manual_seed(0)
    gnn = build(data)
    optimizer = torch.optim.Adam(gnn.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(150):
        optimizer.zero_grad()
        logits = gnn(data.x, data.edge_index)
        torch.nn.functional.cross_entropy(logits[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
    torch.save(gnn.state_dict(), path)


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    data = ab.data.demo_graph()
    pretrain(data, folder / "sage.pt")

    gnn = build(data)
    gnn.load_state_dict(torch.load(folder / "sage.pt", weights_only=True))
    before = ab.evaluate(gnn, data)

    model = ab.attach(gnn, data)
    result = ab.fit(model, data, drop_edge=0.7, strength=0.5, max_epochs=300, progress=False)
    print(f"trained {model.num_buffer_parameters:,} parameters, kept those of epoch {result.best_epoch}")
    print(ab.compare(before, ab.evaluate(model, data)))

    ab.save(model, folder / "sage.aggbuffer.safetensors")
    answers = model(data.x, data.edge_index)
    gnn = ab.detach(model)
    again = ab.load(gnn, folder / "sage.aggbuffer.safetensors")
    print("the same answers after saving and loading:", torch.equal(again(data.x, data.edge_index), answers))


if __name__ == "__main__":
    main()
