"""The same fit in one, two and four processes: how far apart they end, and what a step takes.

A machine of two cores cannot make four processes fast, and two only as far as one did not use both cores already: every
process has one thread, and the numbers say how many cores there were.

Example: python -m benchmarks.scale_ranks --edges 1000000
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import torch
import typer
from safetensors.torch import load_file, save_file
from torch_geometric.nn import GCN

import aggbuffer as ab
from aggbuffer.losses import LossTerms, StepOutputs, robustness_controlled
from aggbuffer.result import EpochRecord
from aggbuffer.scale.distributed import joined
from aggbuffer.text import markdown_table
from benchmarks import results
from benchmarks.scale_graphs import Shape, describe, generate, load

COMMAND = "scale_ranks"
HIDDEN = 128
CACHE = Path.home() / ".cache" / "aggbuffer-benchmarks"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help=__doc__)


@app.command()
def run(
    nodes: int = 100_000,
    edges: int = 4_000_000,
    features: int = 128,
    classes: int = 16,
    ranks: Annotated[str, typer.Option(help="Numbers of processes, separated by commas.")] = "1,2,4",
    seeds: Annotated[int, typer.Option(min=1, help="Of a step, over all processes.")] = 4096,
    fanout: Annotated[int, typer.Option(min=1)] = 10,
    steps: Annotated[int, typer.Option(min=2, help="Of an epoch.")] = 10,
    epochs: Annotated[int, typer.Option(min=1)] = 3,
    cache: Annotated[Path, typer.Option(help="Where the graph is generated.")] = CACHE,
    folder: Annotated[Path, typer.Option("--results")] = results.RESULTS,
) -> None:
    """Measure, and keep the result as JSON."""
    shape = Shape(nodes, edges, features, classes)
    graph = generate(shape, cache)
    settings = {"seeds": seeds, "fanout": fanout, "steps": steps, "epochs": epochs}
    runs = []
    for size in map(int, ranks.split(",")):
        runs.append(_launch(size, graph, settings))
        typer.echo(f"{size} processes: {runs[-1]['step_seconds']:.3f} s a step", err=True)
    for told in runs:
        told["apart"] = _apart(graph, told["ranks"], runs[0]["ranks"])
        told["speed_up"] = runs[0]["step_seconds"] / told["step_seconds"]
    result = {
        "command": COMMAND,
        "graph": describe(graph),
        "nodes": nodes,
        "directed_edges": edges,
        "hidden": HIDDEN,
        **settings,
        "runs": runs,
        "environment": results.environment(1),
    }
    results.write_json(result, folder / COMMAND / f"{nodes}-{edges}.json")
    typer.echo(table(result))


def table(result: dict[str, Any]) -> str:
    """The runs as markdown."""
    rows = [
        [
            str(told["ranks"]),
            f"{told['step_seconds']:.3f}",
            f"{told['speed_up']:.2f}",
            f"{told['epoch_seconds']:.1f}",
            f"{told['apart']:.1e}",
        ]
        for told in result["runs"]
    ]
    cores = result["environment"]["cores"]
    headers = ["processes", "step, s", "speed-up", "epoch with validation, s", "parameters apart"]
    return f"{markdown_table(headers, rows)}\n\nOn {cores} cores, one thread a process."


def _launch(size: int, graph: Path, settings: dict[str, Any]) -> dict[str, Any]:
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={size}", "--module"]
    command = [*launcher, "benchmarks.scale_ranks", "rank", str(graph), json.dumps(settings)]
    subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    told: dict[str, Any] = json.loads((graph / f"ranks-{size}.json").read_text())
    return told


@app.command(hidden=True)
def rank(graph: Path, settings: str) -> None:
    """One of the processes; the first writes what came of it."""
    given: dict[str, Any] = json.loads(settings)
    times: list[float] = []
    epochs: list[float] = []
    last: list[torch.Tensor] = []
    torch.set_num_threads(1)
    data = load(graph)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        gnn = GCN(data.num_features, HIDDEN, 2, int(data.y.max()) + 1).eval()
    model = ab.attach(gnn, data)

    def loss(step: StepOutputs) -> LossTerms:
        times.append(time.perf_counter())
        return robustness_controlled(step)

    def after(record: EpochRecord) -> None:
        epochs.append(time.perf_counter())
        last[:] = [p.detach().clone() for p in model.buffer_parameters()]

    with joined() as ranks:
        batch = ab.BatchConfig(seeds=given["seeds"], fanout=given["fanout"], steps_per_epoch=given["steps"])
        started = time.perf_counter()
        ab.fit(
            model,
            data,
            batch=batch,
            max_epochs=given["epochs"],
            drop_edge=0.5,
            dropout=0.5,
            monitor="rc_loss",
            loss=loss,
            callbacks=[after],
            progress=False,
        )
        if ranks.rank:
            return
    # The model has the best state now, which may be an earlier one; the last follows from every step.
    save_file({str(i): value for i, value in enumerate(last)}, graph / f"ranks-{ranks.size}.st")
    calls = len(times) // (given["steps"] * given["epochs"])  # a step calls the loss once for each of its parts here
    steps = np.diff(times[::calls]).tolist()
    within = [seconds for place, seconds in enumerate(steps, start=1) if place % given["steps"]]
    told = {
        "ranks": ranks.size,
        "step_seconds": median(within[1:]),
        "epoch_seconds": median(np.diff([started, *epochs]).tolist()),
    }
    (graph / f"ranks-{ranks.size}.json").write_text(json.dumps(told))


def _apart(graph: Path, size: int, other: int) -> float:
    ours, theirs = (load_file(graph / f"ranks-{number}.st") for number in (size, other))
    return max((ours[name] - theirs[name]).abs().max().item() for name in ours)


if __name__ == "__main__":
    app(["run", *sys.argv[1:]] if sys.argv[1:2] != ["rank"] else sys.argv[1:])
