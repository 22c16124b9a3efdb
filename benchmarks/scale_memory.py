"""Peak memory and time of a full-batch step, a fit on mini-batches and an evaluation layer by layer, each by itself.

``python -m benchmarks.scale_memory --nodes 232965 --edges 114615892`` generates the graph once, measures in a process
of its own what has not been measured yet, and keeps each measurement as one file.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch_geometric.nn import GCN

import aggbuffer as ab
from aggbuffer.text import markdown_table
from benchmarks import results
from benchmarks.scale_graphs import Shape, describe, generate, load

COMMAND = "scale_memory"
KINDS = ("full_step", "mini_batch", "layerwise_evaluation")
HIDDEN = 128
SEEDS, FANOUT, STEPS = 1024, 10, 50
LAYERWISE = 2**30  # bytes that layers may take beyond the graph
_KIB = 2**10


def measure(kind: str, folder: Path, threads: int) -> dict[str, Any]:
    """One measurement, in this process, which should do nothing else.

    Args:
        kind: One of :data:`KINDS`.
        folder: Of the generated graph.
        threads: Of torch.
    """
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    data = load(folder)
    gnn = GCN(data.num_features, HIDDEN, 2, int(data.y.max()) + 1).eval()
    loaded = _resident()
    started = time.perf_counter()
    model = ab.attach(gnn, data)
    attached = time.perf_counter() - started
    told: dict[str, Any] = {}
    if kind == "full_step":
        fitted = ab.fit(model, data, self_loops="redrawn", max_epochs=2, progress=False)
        told = {"epochs": fitted.epochs, "loss": fitted.history[-1].loss}
    elif kind == "mini_batch":
        batch = ab.BatchConfig(seeds=SEEDS, fanout=FANOUT, steps_per_epoch=STEPS, memory=LAYERWISE)
        fitted = ab.fit(model, data, batch=batch, self_loops="redrawn", max_epochs=2, progress=False)
        told = {"batch": batch.to_dict(), "epochs": fitted.epochs, "loss": fitted.history[-1].loss}
    else:
        scores = ab.evaluate(model, data, keep=(1, 0.5, 0), repeats=1, memory=LAYERWISE)
        told = {"memory": LAYERWISE, "accuracy": scores.overall.accuracy}
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
    return {
        "command": COMMAND,
        "kind": kind,
        "graph": describe(folder),
        "hidden": HIDDEN,
        "data_bytes": sum(t.numel() * t.element_size() for t in data.to_dict().values()),
        "resident_with_data": loaded,
        "peak": peak,
        "beyond_data": peak - loaded,
        "attach_seconds": attached,
        "seconds": seconds,
        **told,
        "environment": results.environment(threads),
    }


def table() -> str:
    """All measurements, GiB, as markdown."""
    found = [json.loads(path.read_text()) for path in sorted((results.RESULTS / COMMAND).glob("*.json"))]
    rows = [
        [
            result["kind"].replace("_", " "),
            f"{result['graph']['edges']:,}",
            *(f"{result[name] / 2**30:.2f}" for name in ("data_bytes", "beyond_data", "peak")),
            f"{result['seconds']:.0f}",
        ]
        for result in sorted(found, key=lambda result: (result["graph"]["edges"], KINDS.index(result["kind"])))
    ]
    return markdown_table(["what", "edges", "data, GiB", "beyond it, GiB", "peak, GiB", "seconds"], rows)


def _resident() -> int:
    """Bytes of this process in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    usual = Shape()
    for name in ("nodes", "edges", "features", "classes", "seed"):
        parser.add_argument(f"--{name}", type=int, default=getattr(usual, name))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "aggbuffer-benchmarks")
    parser.add_argument("--alone", choices=KINDS, help=argparse.SUPPRESS)  # the process of one measurement
    given = parser.parse_args()
    shape = Shape(given.nodes, given.edges, given.features, given.classes, seed=given.seed)
    folder = generate(shape, given.cache)
    if given.alone:
        print(json.dumps(measure(given.alone, folder, given.threads)))
        return
    for kind in given.kinds:
        path = results.RESULTS / COMMAND / f"{shape.nodes}-{shape.edges}-{kind}.json"
        if path.exists():
            continue
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.scale_memory", *sys.argv[1:], "--alone", kind],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found = json.loads(done.stdout.splitlines()[-1])
        results.write_json(found, path)
        print(f"{kind}: {found['beyond_data'] / 2**30:.2f} GiB beyond the data, {found['seconds']:.1f} s", flush=True)


if __name__ == "__main__":
    main()
