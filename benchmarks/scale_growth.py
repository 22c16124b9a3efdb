"""Time and peak memory against the number of edges: full batch, mini-batch, and inference layer by layer.

Every point is a process of its own, and is kept as one file of JSON; what is there is not measured again. At the end,
the cost model predicts the largest graph from the others.

Example: python -m benchmarks.scale_growth --sizes 100000,1000000
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch_geometric.data import Data

import aggbuffer as ab
from aggbuffer.losses import LossTerms, StepOutputs, robustness_controlled
from benchmarks import cost_model, graphs, results
from benchmarks.cost_model import RESULTS, Sizes
from paper.bases import new
from paper.environment import forget_peak_memory, peak_memory

SIZES = "100000,300000,1000000,3000000,10000000,30000000,100000000"
MODES = ("full", "batch", "inference")
STEPS = {"full": 5, "batch": 20, "inference": 2}
SCRATCH = Path.home() / ".cache" / "aggbuffer-benchmarks" / "growth"
_SPARED = 0.9  # of the memory that is free, which a point may take: more, and the system would kill others for it

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help=__doc__)


@app.command()
def grow(
    sizes: Annotated[str, typer.Option(help="Numbers of directed edges, separated by commas.")] = SIZES,
    modes: Annotated[str, typer.Option(help="Of full, batch and inference.")] = ",".join(MODES),
    threads: Annotated[int, typer.Option(min=1)] = os.cpu_count() or 1,
    folder: Annotated[Path, typer.Option("--results", help="Where results are kept.")] = RESULTS,
    scratch: Annotated[Path, typer.Option(help="Where graphs are written meanwhile.")] = SCRATCH,
) -> None:
    """Measure what is not there yet, and print the cost model of all that is."""
    folder.mkdir(parents=True, exist_ok=True)
    for size in map(int, sizes.split(",")):
        path = folder / f"{size}.json"
        point: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"costs": {}, "why_not": {}}
        missing = [m for m in modes.split(",") if f"{m} peak bytes" not in point["costs"] and m not in point["why_not"]]
        if not missing:
            continue
        typer.echo(f"{size:,} edges: generating", err=True)
        _in_a_process("generate", size, scratch, threads)
        for mode in missing:
            typer.echo(f"{size:,} edges: {mode}", err=True)
            found = _in_a_process(mode, size, scratch, threads)
            if "why" in found:
                point["why_not"][mode] = found["why"]
            else:
                point["costs"] |= found["costs"]
                point["sizes"] = found["sizes"]
            point["environment"] = results.environment(threads)
            results.write_json(point, path)
        shutil.rmtree(scratch)
    typer.echo(cost_model.table([point for point in cost_model.kept(folder) if point["costs"]]))


def _in_a_process(mode: str, size: int, scratch: Path, threads: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.scale_growth", "point", mode, str(size), str(scratch), str(threads)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {"why": f"ended with code {done.returncode}: {lines[-1] if lines else 'it said nothing'}"}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@app.command(hidden=True)
def point(mode: str, size: int, scratch: Path, threads: int) -> None:
    """One point, in a process of its own."""
    torch.set_num_threads(threads)
    if mode == "generate":
        _generate(size, scratch)
        typer.echo("{}")
        return
    resource.setrlimit(resource.RLIMIT_DATA, (int(_SPARED * _free_memory()), -1))
    case = graphs.case(graphs.growing(2000))  # for its settings, which are those of every size
    data = _read(scratch)
    gnn = new(data, case.base, seed=0)
    forget_peak_memory()  # the graph, which is part of the peak, has been read without copies
    model = ab.attach(gnn, data)
    seconds = {"full": _full, "batch": _batch, "inference": _inference}[mode](model, data)
    sizes = Sizes(data.num_nodes, data.num_edges, data.num_features, case.base.hidden, int(data.y.max()) + 1)
    name = "inference seconds" if mode == "inference" else f"{mode} step seconds"
    costs = {name: seconds, f"{mode} peak bytes": peak_memory() * 2**20}
    typer.echo(json.dumps({"sizes": asdict(sizes), "costs": costs}))


def _generate(size: int, scratch: Path) -> None:
    scratch.mkdir(parents=True, exist_ok=True)
    data = graphs.case(graphs.growing(size)).data
    for name, value in data.to_dict().items():
        np.save(scratch / f"{name}.npy", value.numpy())


def _read(scratch: Path) -> Data:
    return Data(**{path.stem: torch.from_numpy(np.load(path)) for path in sorted(scratch.glob("*.npy"))})


def _full(model: ab.BufferedGNN, data: Data) -> float:
    return _between_losses(
        lambda loss: ab.fit(model, data, self_loops="kept", max_epochs=STEPS["full"], loss=loss, progress=False)
    )


def _batch(model: ab.BufferedGNN, data: Data) -> float:
    batch = ab.BatchConfig(seeds=Sizes.seeds, fanout=Sizes.fanout, steps_per_epoch=STEPS["batch"])
    return _between_losses(
        lambda loss: ab.fit(model, data, batch=batch, self_loops="kept", max_epochs=1, loss=loss, progress=False),
        batch.parts,
    )


def _inference(model: ab.BufferedGNN, data: Data) -> float:
    seconds = []
    for _ in range(STEPS["inference"]):
        started = time.perf_counter()
        ab.infer(model, data)
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def _between_losses(fit: Callable[[Callable[[StepOutputs], LossTerms]], object], parts: int = 1) -> float:
    """The median time from one step to the next, without the first, which warms up; a step has so many parts."""
    times = []

    def loss(step: StepOutputs) -> LossTerms:
        times.append(time.perf_counter())
        return robustness_controlled(step)

    fit(loss)
    steps = np.diff(times[::parts]).tolist()
    return median(steps[1:] or steps)


def _free_memory() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


if __name__ == "__main__":
    app(["grow", *sys.argv[1:]] if sys.argv[1:2] != ["point"] else sys.argv[1:])
