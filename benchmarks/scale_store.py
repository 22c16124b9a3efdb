"""A graph of Reddit's size from disk: built into a store, fitted and evaluated, each under a limit of memory.

The limit is enforced by the system: a process that asks for more private memory gets none. What is mapped from files
can be evicted at any time and does not count. Unless told otherwise, the same fit then runs on the graph in memory,
without a limit, and must come to the same.

Example: python -m benchmarks.scale_store --memory 3GiB
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from safetensors.torch import load_file, save_file
from torch_geometric.nn import GCN

import aggbuffer as ab
from aggbuffer.text import bytes_of
from benchmarks import results
from benchmarks.scale_graphs import Shape, describe, generate, load

COMMAND = "scale_store"
HIDDEN, SEEDS, FANOUT = 128, 1024, 10
CACHE = Path.home() / ".cache" / "aggbuffer-benchmarks"
_USUAL = Shape()
_AT_ONCE = 2**22
_SHARE = 4  # a part of the limit of this size is what a build sorts in, and what layers may take
_COMPARED = 1000  # nodes whose logits are compared

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help=__doc__)


@app.command()
def run(
    nodes: int = _USUAL.nodes,
    edges: int = _USUAL.edges,
    features: int = _USUAL.features,
    classes: int = _USUAL.classes,
    memory: Annotated[str, typer.Option(help="The limit of each process.")] = "3GiB",
    steps: Annotated[int, typer.Option(min=1, help="Of an epoch.")] = 50,
    epochs: Annotated[int, typer.Option(min=1)] = 2,
    compare: Annotated[bool, typer.Option(help="With the same in memory.")] = True,
    threads: Annotated[int, typer.Option(min=1)] = os.cpu_count() or 1,
    cache: Annotated[Path, typer.Option(help="Where the graph is generated and the store built.")] = CACHE,
    folder: Annotated[Path, typer.Option("--results")] = results.RESULTS,
) -> None:
    """Measure, and keep the result as JSON."""
    shape = Shape(nodes, edges, features, classes)
    graph, limit = generate(shape, cache), bytes_of(memory)
    _as_inputs(graph)
    settings = {"limit": limit, "steps": steps, "epochs": epochs, "threads": threads, "graph": str(graph)}
    found = {"build": _alone("build", settings), "disk": _alone("disk", settings)}
    if compare:
        found["memory"] = _alone("memory", settings | {"limit": None})
        found["apart"] = _apart(graph, found)
    told = {
        "command": COMMAND,
        "graph": describe(graph),
        "nodes": nodes,
        "directed_edges": edges,
        "limit": limit,
        "hidden": HIDDEN,
        "batch": {"seeds": SEEDS, "fanout": FANOUT, "steps_per_epoch": steps},
        "epochs": epochs,
        **found,
        "environment": results.environment(threads),
    }
    results.write_json(told, folder / COMMAND / f"{nodes}-{edges}.json")
    typer.echo(json.dumps({name: found[name] for name in found}, indent=1))


def _as_inputs(graph: Path) -> None:
    """What a store is built from, beside the arrays of the generated graph; a table of edges is written in parts."""
    raw = graph / "raw"
    if (raw / "edges.parquet").exists():
        return
    import pyarrow
    from pyarrow import parquet

    raw.mkdir(exist_ok=True)
    part = np.load(graph / "part.npy")
    np.save(raw / "masks.npy", np.stack([part < 0.66, (part >= 0.66) & (part < 0.76), part >= 0.76], axis=1))
    for name, source in (("features.npy", "x.npy"), ("labels.npy", "y.npy")):
        if not (raw / name).exists():
            os.link(graph / source, raw / name)
    ends = np.load(graph / "edge_index.npy", mmap_mode="r")
    schema = pyarrow.schema([("source", pyarrow.int64()), ("target", pyarrow.int64())])
    with parquet.ParquetWriter(raw / "edges.partial", schema) as file:
        for start in range(0, ends.shape[1], _AT_ONCE):
            columns = [np.ascontiguousarray(end[start : start + _AT_ONCE]) for end in ends]
            file.write_table(pyarrow.table(dict(zip(schema.names, columns, strict=True)), schema=schema))
    (raw / "edges.partial").rename(raw / "edges.parquet")


def _alone(task: str, settings: dict[str, Any]) -> dict[str, Any]:
    """A task in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scale_store", "task", task, json.dumps(settings)]
    environment = os.environ | {"OMP_NUM_THREADS": str(settings["threads"])}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@app.command(hidden=True)
def task(name: str, settings: str) -> None:
    """One task in this process, under its limit."""
    given = json.loads(settings)
    torch.set_num_threads(given["threads"])
    if given["limit"] is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (given["limit"], given["limit"]))
    graph, share = Path(given["graph"]), (given["limit"] or bytes_of("3GiB")) // _SHARE
    started = time.perf_counter()
    if name == "build":
        if (graph / "store").exists():
            told: dict[str, Any] = {"built": "before"}
        else:
            ab.store.build(graph / "raw", graph / "store", memory=share)
            told = {"seconds": time.perf_counter() - started}
    else:
        data: Any = ab.store.open(graph / "store") if name == "disk" else load(graph)
        told = _fit(data, given, share, graph / f"{name}.safetensors")
    typer.echo(json.dumps(told | {"private_at_the_end": _private(), "peak_resident": _resident()}))


def _fit(data: Any, given: dict[str, Any], share: int, out: Path) -> dict[str, Any]:
    """A fit, an evaluation, and what has to agree."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        gnn = GCN(data.num_features, HIDDEN, 2, int(data.get("y").max()) + 1).eval()
    model = ab.attach(gnn, data)
    batch = ab.BatchConfig(seeds=SEEDS, fanout=FANOUT, steps_per_epoch=given["steps"], prefetch=0, memory=share)
    started = time.perf_counter()
    result = ab.fit(model, data, batch=batch, max_epochs=given["epochs"], monitor="rc_loss", progress=False)
    fitted = time.perf_counter()
    scores = ab.evaluate(model, data, keep=(1, 0), repeats=1, memory=share)
    evaluated = time.perf_counter()
    kept = {str(i): p.detach() for i, p in enumerate(model.buffer_parameters())}
    nodes = torch.arange(min(_COMPARED, data.num_nodes))
    save_file(kept | {"logits": ab.infer(model, data, memory=share, nodes=nodes)}, out)
    return {
        "fit_seconds": fitted - started,
        "evaluate_seconds": evaluated - fitted,
        "best_epoch": result.best_epoch,
        "losses": [record.loss for record in result.history],
        "accuracy": scores.overall.accuracy,
        "accuracy_without_edges": scores.edge_removal[0].accuracy,
    }


def _apart(graph: Path, found: dict[str, Any]) -> dict[str, float]:
    """How far both runs are apart at most."""
    disk, memory = (load_file(graph / f"{name}.safetensors") for name in ("disk", "memory"))
    distance = {name: (disk[name] - memory[name]).abs().max().item() for name in disk}
    return {
        "parameters": max(value for name, value in distance.items() if name != "logits"),
        "logits": distance["logits"],
        "accuracy": abs(found["disk"]["accuracy"] - found["memory"]["accuracy"]),
    }


def _private() -> int:
    """Bytes of private memory that this process has asked for now; with a limit, never more than that."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData"))


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    app(["run", *sys.argv[1:]] if sys.argv[1:2] != ["task"] else sys.argv[1:])
