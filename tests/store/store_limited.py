"""A build, a fit and an evaluation in less memory than the graph takes: ``python store_limited.py RAW FOLDER MIB``.

From the moment everything is imported, the process may ask for MIB more, which is less than the features alone. What
it comes to is written into FOLDER.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch_geometric.nn import GCN

import aggbuffer as ab
from aggbuffer import store

FIT = {"max_epochs": 2, "seed": 1, "lr": 0.05, "drop_edge": 0.5, "monitor": "rc_loss", "progress": False}
BATCH = {"seeds": 128, "fanout": 4, "steps_per_epoch": 8, "memory": 2**24}
MEMORY = 2**24


def base(features: int) -> torch.nn.Module:
    """A model with weights of its own seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return GCN(features, 8, 2, 3).eval()


def fitted(graph: Any) -> ab.BufferedGNN:
    """The model with buffers that were trained on the graph."""
    model = ab.attach(base(graph.num_features), graph)
    ab.fit(model, graph, batch=ab.BatchConfig(**BATCH), **FIT)  # type: ignore[arg-type]
    return model


def limit(more: int) -> None:
    """Let this process ask for so many bytes more, and no byte beyond."""
    lines = Path("/proc/self/status").read_text().splitlines()
    now = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (now + more, now + more))


def main(raw: Path, folder: Path, more: int) -> None:
    import pyarrow.parquet  # noqa: F401 (what is imported beforehand does not count)

    limit(more)
    try:
        np.load(raw / "features.npy")
        sys.exit("the limit does not hold: the features were read at once")
    except MemoryError:
        pass
    store.build(raw, folder / "store", memory="8MiB")
    graph = store.open(folder / "store")
    model = fitted(graph)
    evaluation = ab.evaluate(model, graph, keep=(1, 0.5), repeats=1, memory=MEMORY)
    logits = ab.infer(model, graph, memory=MEMORY, nodes=torch.arange(500))
    save_file(
        {"logits": logits} | {str(i): p.detach() for i, p in enumerate(model.buffer_parameters())},
        folder / "found.safetensors",
    )
    (folder / "found.json").write_text(json.dumps(evaluation.to_dict()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) * 2**20)
