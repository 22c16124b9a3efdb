"""Layer-wise inference stays within the memory it was given, measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys, torch
from pathlib import Path
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN
from aggbuffer.graph import Graph
from aggbuffer.scale.layerwise import Layerwise
from aggbuffer.scale.source import GraphSource

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])

torch.manual_seed(0)
torch.set_num_threads(1)
nodes, edges, width = 10_000, 500_000, 256
ends = torch.randint(nodes * nodes, (edges,)).unique()
data = Data(x=torch.randn(nodes, 64), edge_index=torch.stack([ends // nodes, ends % nodes]))
gnn = {"GAT": GAT, "GCN": GCN}[sys.argv[1]](64, width, 2, 8).eval()
source = GraphSource(Graph.of(data))
memory = int(sys.argv[2])
layerwise = Layerwise(gnn, source, memory=memory)
Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
before = peak()
layerwise.logits()
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read from Linux's /proc")
@pytest.mark.parametrize("name", ["GCN", "GAT"])
def test_the_peak_stays_near_the_budget(name: str) -> None:
    """At once, the messages of one layer alone take half a gigabyte."""
    memory = 48 * 2**20
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name, str(memory)], stdout=subprocess.PIPE, text=True, check=True
    )
    assert int(done.stdout) < 1.25 * memory + 2**24, f"{int(done.stdout) / 2**20:.0f} MiB"
