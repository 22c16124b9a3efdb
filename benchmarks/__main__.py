"""Speed and memory of this library beside plain PyG and DGL, on a machine that does nothing else meanwhile.

Example: python -m benchmarks step --graphs Cora,PubMed --root DIR; python -m benchmarks table
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from benchmarks import end_to_end, graphs, machine, page, plots, results, tables
from benchmarks.interleave import Contender, measure

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False)

DGL_PYTHON = Path(__file__).parent / ".venv-dgl" / "bin" / "python"
PEERS = ("ours", "pyg", "dgl")
ALL_PEERS = ",".join(PEERS)
ALL_GRAPHS, SOME_GRAPHS = ",".join(graphs.NAMES), f"Cora,PubMed,{graphs.LARGE}"
CORES = os.cpu_count() or 1
SIZES = "10000,30000,100000,300000,1000000,3000000,10000000"
BUSY = 0.5  # processes that wanted to run during the last minute, on average

Graphs = Annotated[str, typer.Option("--graphs", help="Names, separated by commas.")]
Steps = Annotated[int, typer.Option(min=1, help="Timed steps of every contender.")]
Burst = Annotated[int, typer.Option(min=1, help="Steps of a contender in one turn.")]
Root = Annotated[Path | None, typer.Option(envvar="AGGBUFFER_DATA_ROOT", help="Folder with the graphs.")]
Peers = Annotated[str, typer.Option(help="Contenders, separated by commas.")]
DglPython = Annotated[
    Path | None,
    typer.Option(exists=True, dir_okay=False, help="A Python with DGL; that of `make bench-dgl` by default."),
]
Threads = Annotated[int, typer.Option(min=1, help="Of every contender.")]
Folder = Annotated[Path, typer.Option("--results", help="Where results are kept.", show_default=False)]


@app.command()
def step(
    names: Graphs = ALL_GRAPHS,
    steps: Steps = 15,
    burst: Burst = 5,
    root: Root = None,
    peers: Peers = ALL_PEERS,
    dgl_python: DglPython = None,
    threads: Threads = CORES,
    folder: Folder = results.RESULTS,
) -> None:
    """A training step of the buffers: clean and perturbed pass, backward, Adam, validation.

    Example: python -m benchmarks step --graphs Cora,PubMed --steps 30 --root DIR
    """
    measured = _run("step", _graphs(names), _contenders("step", peers, dgl_python), steps, burst, root, threads, folder)
    typer.echo(tables.times(measured))
    if limits := page.machine(folder):
        typer.echo("\n" + tables.bounds(measured, limits))
    else:
        _tell("for a lower bound of each step, first run: python -m benchmarks machine")
    _exit(measured)


@app.command()
def inference(
    names: Graphs = SOME_GRAPHS,
    steps: Steps = 31,
    burst: Burst = 5,
    root: Root = None,
    peers: Peers = ALL_PEERS,
    dgl_python: DglPython = None,
    threads: Threads = CORES,
    folder: Folder = results.RESULTS,
) -> None:
    """A pass without gradients: ours with buffers and without, and over edges never seen; the others' GCN without any.

    Example: python -m benchmarks inference --graphs Cora --root DIR
    """
    contenders = _contenders("inference", peers, dgl_python)
    if "ours" in (chosen := [contender.name for contender in contenders]):
        ours = contenders[chosen.index("ours")]
        contenders.insert(chosen.index("ours") + 1, replace(ours, name=tables.WITHOUT, task="inference_base"))
        contenders.insert(chosen.index("ours") + 2, replace(ours, name=results.UNSEEN, task="inference_unseen"))
    measured = _run("inference", _graphs(names), contenders, steps, burst, root, threads, folder)
    typer.echo(tables.times(measured))
    _exit(measured)


@app.command()
def base(
    names: Graphs = "Cora,CS,PubMed",
    steps: Steps = 15,
    burst: Burst = 5,
    root: Root = None,
    peers: Peers = ALL_PEERS,
    dgl_python: DglPython = None,
    threads: Threads = CORES,
    folder: Folder = results.RESULTS,
) -> None:
    """A training step of the base GCN and its evaluation.

    Example: python -m benchmarks base --graphs Cora --root DIR
    """
    measured = _run("base", _graphs(names), _contenders("base", peers, dgl_python), steps, burst, root, threads, folder)
    typer.echo(tables.times(measured))
    _exit(measured)


@app.command()
def scaling(
    sizes: Annotated[str, typer.Option(help="Numbers of directed edges, separated by commas.")] = SIZES,
    steps: Steps = 9,
    burst: Burst = 5,
    peers: Peers = "ours",
    dgl_python: DglPython = None,
    threads: Threads = CORES,
    folder: Folder = results.RESULTS,
) -> None:
    """A training step of the buffers on generated graphs of one width, from small to large.

    Example: python -m benchmarks scaling --sizes 10000,100000,1000000
    """
    names = [graphs.growing(int(size)) for size in sizes.split(",")]
    measured = _run("scaling", names, _contenders("step", peers, dgl_python), steps, burst, None, threads, folder)
    typer.echo(tables.scaling(measured))
    _exit(measured)


@app.command()
def memory(
    names: Graphs = graphs.LARGE,
    steps: Steps = 2,
    root: Root = None,
    peers: Peers = ALL_PEERS,
    dgl_python: DglPython = None,
    threads: Threads = CORES,
    folder: Folder = results.RESULTS,
) -> None:
    """The most memory that a process takes to train the buffers.

    Example: python -m benchmarks memory --graphs PubMed --root DIR
    """
    measured = _run("memory", _graphs(names), _contenders("step", peers, dgl_python), steps, 1, root, threads, folder)
    typer.echo(tables.memory(measured))
    _exit(measured)


@app.command(name="end-to-end")
def whole_fit(
    names: Graphs = "Cora,PubMed",
    splits: Annotated[int, typer.Option(min=1, help="How many, from the first.")] = 3,
    root: Root = None,
    threads: Threads = CORES,
    folder: Folder = results.RESULTS,
) -> None:
    """A whole fit with the library's defaults, against the authors' steps in DGL; needs `step` results.

    Example: python -m benchmarks end-to-end --graphs Cora --root DIR
    """
    _warn_if_busy()
    measured = []
    for name in _names(names, tuple(end_to_end.STEPS_OF_THE_AUTHORS)):
        measured.append(end_to_end.measure(name, splits, root, threads, folder))
        results.write(measured[-1], folder)
    typer.echo(end_to_end.table(measured))


@app.command(name="machine")
def measure_machine(threads: Threads = CORES, folder: Folder = results.RESULTS) -> None:
    """The machine's own limits, which lower bounds are computed from.

    Example: python -m benchmarks machine
    """
    _warn_if_busy()
    torch.set_num_threads(threads)
    limits = machine.measure()
    results.write_json(asdict(limits) | {"environment": results.environment(threads)}, folder / "machine.json")
    typer.echo(tables.machine(limits))


@app.command(name="table")
def show(
    write: Annotated[bool, typer.Option("--write", help="Into docs/performance.md.")] = False,
    folder: Folder = results.RESULTS,
) -> None:
    """All results that are kept, as markdown.

    Example: python -m benchmarks table --write
    """
    typer.echo(f"wrote {page.write(folder)}" if write else page.body(folder, pictures=False))


@app.command()
def plot(
    assets: Annotated[Path, typer.Option(help="Where pictures go.", show_default=False)] = plots.ASSETS,
    folder: Folder = results.RESULTS,
) -> None:
    """Draw the pictures of docs/performance.md.

    Example: python -m benchmarks plot
    """
    if steps := results.every("step", folder):
        typer.echo(f"wrote {plots.bars(steps, assets / plots.STEP)}")
    if sizes := results.every("scaling", folder):
        typer.echo(f"wrote {plots.line(sizes, tables.slopes(sizes), assets / plots.SCALING)}")


def _run(
    command: str,
    names: Sequence[str],
    contenders: Sequence[Contender],
    steps: int,
    burst: int,
    root: Path | None,
    threads: int,
    folder: Path,
) -> list[dict[str, Any]]:
    """Measure graph by graph; each result is kept at once."""
    _warn_if_busy()
    measured: list[dict[str, Any]] = []
    for name in names:
        case = graphs.case(name, root).file(threads)
        outcomes = measure(case, contenders, steps, burst=burst, tell=_tell)
        measured.append(results.record(command, case, outcomes))
        results.write(measured[-1], folder)
    return measured


def _contenders(task: str, peers: str, dgl_python: Path | None) -> list[Contender]:
    return [_contender(name, task, dgl_python) for name in _names(peers, PEERS)]


def _contender(name: str, task: str, dgl_python: Path | None) -> Contender:
    if name != "dgl":
        return Contender(name, name, task, Path(sys.executable))
    python = dgl_python or (DGL_PYTHON if DGL_PYTHON.exists() else None)
    return Contender(name, name, task, python, "" if python else "has no environment here; `make bench-dgl` makes one")


def _graphs(names: str) -> list[str]:
    return _names(names, graphs.NAMES)


def _names(asked: str, known: Sequence[str]) -> list[str]:
    names = [name.strip() for name in asked.split(",")]
    if strange := [name for name in names if name not in known]:
        raise typer.BadParameter(f"there is no {strange[0]!r}; there are {', '.join(known)}")
    return names


def _exit(measured: Sequence[dict[str, Any]]) -> None:
    """Not with success where we have no numbers, or some that are not to be trusted."""
    if any(result["doubt"] or "why" in result["peers"].get("ours", {}) for result in measured):
        raise typer.Exit(1)


def _warn_if_busy() -> None:
    if (load := os.getloadavg()[0]) > BUSY:
        _tell(f"the machine was busy before this (load {load:.1f}); if it still is, the times say little")


def _tell(text: str) -> None:
    typer.echo(text, err=True)


if __name__ == "__main__":
    app()
