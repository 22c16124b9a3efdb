"""For a server: export base and buffers as one program, and reload it with torch alone: the answers are the same."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch.export import Dim
from torch_geometric.nn import GCN

import aggbuffer as ab

SERVER = """
import sys
import torch

x, edge_index = torch.load("request.pt", weights_only=True)
program = torch.export.load("model.pt2").module()
with torch.no_grad():
    torch.save(program(x, edge_index), "answer.pt")
print("the server knows aggbuffer or PyG:", bool({"aggbuffer", "torch_geometric"} & set(sys.modules)))
"""


def main() -> None:
    torch.manual_seed(0)
    data = ab.data.demo_graph()
    gnn = GCN(data.num_features, 32, num_layers=2, out_channels=10).eval()
    model = ab.attach(gnn, data)
    ab.fit(model, data, max_epochs=20, progress=False)
    model.eval()

    # Any number of nodes and edges. As the model takes what its base takes, the shapes go under the name "args".
    sizes = {"args": ({0: Dim("nodes", min=2, max=10**7)}, {1: Dim("edges", min=2, max=10**9)})}
    with torch.no_grad():
        program = torch.export.export(model, (data.x, data.edge_index), dynamic_shapes=sizes, strict=False)
    folder = Path(tempfile.mkdtemp())
    torch.export.save(program, folder / "model.pt2")

    # Another graph than the one it was exported with: the first thousand nodes alone.
    x = data.x[:1000]
    edge_index = data.edge_index[:, (data.edge_index < 1000).all(0)]
    torch.save((x, edge_index), folder / "request.pt")
    subprocess.run([sys.executable, "-W", "ignore", "-c", SERVER], cwd=folder, check=True)

    answer = torch.load(folder / "answer.pt", weights_only=True)
    with torch.no_grad():
        expected = model(x, edge_index)
    print("the server's answers are the model's:", torch.allclose(answer, expected, atol=1e-5))


if __name__ == "__main__":
    main()
