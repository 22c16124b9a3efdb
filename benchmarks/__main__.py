"""Speed and memory of this library beside plain PyG and DGL.

Example: python -m benchmarks step --graphs Cora,PubMed --root DIR; python -m benchmarks table
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import graphs, results, tables
from benchmarks.interleave import Contender, measure

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False)

DGL_PYTHON = Path(__file__).parent / ".venv-dgl" / "bin" / "python"
PEERS = ("ours", "pyg", "dgl")

Graphs = Annotated[str | None, typer.Option(help="Names, separated by commas; all of the command's by default.")]
Steps = Annotated[int, typer.Option(min=1, help="Timed steps of every contender.")]
Burst = Annotated[int, typer.Option(min=1, help="Steps in one turn.")]
Root = Annotated[Path | None, typer.Option(envvar="AGGBUFFER_DATA_ROOT", help="Folder with the graphs.")]
Peers = Annotated[str, typer.Option(help="Contenders, separated by commas.")]
DglPython = Annotated[Path | None, typer.Option(help="A Python with DGL; that of `make bench-dgl` by default.")]
Threads = Annotated[int, typer.Option(min=1, help="Of every contender.")]
Folder = Annotated[Path, typer.Option("--results", help="Where results are kept.")]

ALL_PEERS = ",".join(PEERS)
CORES = os.cpu_count() or 1


@app.command()
def step(
    graphs_: Annotated[str | None, typer.Option("--graphs", help="Names, separated by commas; all by default.")] = None,
    steps: Steps = 15,
    burst: Burst = 1,
    root: Root = None,
    peers: Peers = ALL_PEERS,
    dgl_python: DglPython = None,
    threads: Threads = CORES,
    folder: Folder = results.RESULTS,
) -> None:
    """A training step of the buffers: clean and perturbed pass, backward, Adam, validation."""
    contenders = _contenders("step", peers, dgl_python)
    _measure("step", _names(graphs_, graphs.NAMES), contenders, steps, burst, root, threads, folder)


@app.command(name="table")
def show(folder: Folder = results.RESULTS) -> None:
    """All results that are kept, as markdown."""
    typer.echo(tables.times(results.every("step", folder)))


def _measure(
    command: str,
    names: Sequence[str],
    contenders: Sequence[Contender],
    steps: int,
    burst: int,
    root: Path | None,
    threads: int,
    folder: Path,
) -> None:
    """Measure graph by graph, keep each result at once, and print them all."""
    measured: list[dict[str, Any]] = []
    for name in names:
        case = graphs.case(name, root).file(threads)
        outcomes = measure(case, contenders, steps, burst=burst, tell=_tell)
        result = results.record(command, case, outcomes)
        results.write(result, folder)
        measured.append(result)
    typer.echo(tables.times(measured))


def _contenders(task: str, peers: str, dgl_python: Path | None) -> list[Contender]:
    chosen = _names(peers, PEERS)
    return [_contender(name, task, dgl_python) for name in chosen]


def _contender(name: str, task: str, dgl_python: Path | None) -> Contender:
    if name != "dgl":
        return Contender(name, name, task, Path(sys.executable))
    python = dgl_python or (DGL_PYTHON if DGL_PYTHON.exists() else None)
    return Contender(name, name, task, python, "" if python else "has no environment here; `make bench-dgl` makes one")


def _names(asked: str | None, known: Sequence[str]) -> list[str]:
    names = list(known) if asked is None else [name.strip() for name in asked.split(",")]
    if strange := [name for name in names if name not in known]:
        raise typer.BadParameter(f"there is no {strange[0]!r}; there are {', '.join(known)}")
    return names


def _tell(text: str) -> None:
    typer.echo(text, err=True)


if __name__ == "__main__":
    app()
