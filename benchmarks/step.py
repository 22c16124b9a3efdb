"""One training step of the buffer: this library and plain PyG, step by step in turn, in one run.

python -m benchmarks.step --graphs Cora,CS --root DIR
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

import aggbuffer as ab
from aggbuffer.files import write_bytes
from aggbuffer.result import EpochRecord
from aggbuffer.text import markdown_table
from benchmarks.graphs import LARGE, Case, case
from benchmarks.plain import PlainStep
from paper.bases import new
from paper.environment import describe

RESULTS = Path(__file__).parent / "results" / "step"
GRAPHS = ["Cora", "CiteSeer", "Chameleon", "PubMed", "Photo", "CS", LARGE]
WARM_UP = 3


def measure(which: Case, steps: int) -> dict[str, Any]:
    """Median seconds of a step of either, taken alternately so that both see the same machine."""
    torch.manual_seed(0)
    gnn = new(which.data, which.base, seed=0).eval()
    peer = PlainStep(which, gnn)
    model = ab.attach(gnn, which.data)
    ours: list[float] = []
    theirs: list[float] = []
    left = 0.0

    def in_turn(record: EpochRecord) -> None:
        nonlocal left
        reached = time.perf_counter()
        if left:
            ours.append(reached - left)
        peer.step()
        theirs.append(time.perf_counter() - reached)
        left = time.perf_counter()

    settings = {"drop_edge": which.drop_edge, "dropout": which.dropout}
    ab.fit(model, which.data, max_epochs=steps + WARM_UP, patience=steps + WARM_UP, callbacks=[in_turn], **settings)
    return {
        "graph": which.name,
        "hidden": which.base.hidden,
        **settings,
        "steps": steps,
        "aggbuffer_seconds": median(ours[WARM_UP - 1 :]),
        "pyg_seconds": median(theirs[WARM_UP:]),
        "environment": describe(),
    }


def table() -> str:
    """What has been measured."""
    rows = []
    for name in GRAPHS:
        path = RESULTS / f"{name.replace(' ', '-')}.json"
        if path.exists():
            found = json.loads(path.read_text())
            plain, ours = 1000 * found["pyg_seconds"], 1000 * found["aggbuffer_seconds"]
            rows.append([name, f"{plain:.1f}", f"{ours:.1f}", f"{plain / ours:.1f}"])
    return markdown_table(["graph", "plain PyG, ms", "aggbuffer, ms", "ratio"], rows)


def main() -> None:
    """Measure the named graphs; print the table of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", default=",".join(GRAPHS), help="names, separated by commas")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--root", type=Path, help="folder with the paper's graphs")
    arguments = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in arguments.graphs.split(","):
        result = measure(case(name, arguments.root), arguments.steps)
        write_bytes(json.dumps(result, indent=1).encode(), RESULTS / f"{name.replace(' ', '-')}.json")
        print(table(), flush=True)


if __name__ == "__main__":
    main()
