"""``aggbuffer store build``, ``check`` and ``info``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aggbuffer.cli.options import AsJson, Debug, Quiet
from aggbuffer.cli.session import Session, session

if TYPE_CHECKING:
    from aggbuffer.store import Meta

app = typer.Typer(no_args_is_help=True, help="Graphs that do not fit into memory: build, check and describe stores.")

Folder = Annotated[Path, typer.Argument(help="Of the store.", show_default=False)]


@app.command("build", epilog="Example: aggbuffer store build raw --out graph.store --memory 2GiB")
def build_store(
    source: Annotated[
        Path,
        typer.Argument(
            help="A folder of edges.parquet or edges.csv (source, target and possibly weight; nodes count from 0), "
            "features.npy and, where known, labels.npy and masks.npy, or nodes.parquet in their place.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to make.")],
    memory: Annotated[str, typer.Option("--memory", help="How much may be used at a time, such as 2GiB.")] = "1GiB",
    coalesce: Annotated[
        bool, typer.Option("--coalesce", help="Drop edges that are listed again instead of refusing them.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Build a graph store from files of any size; run again after a kill, it goes on where it was."""
    with session(as_json=as_json, quiet=quiet, debug=debug) as work:
        from aggbuffer.store import build

        work.interrupted = lambda: "Stopped; what is finished is kept. Run the same command again to go on from there."
        _tell(work, out, build(source, out, memory=memory, coalesce=coalesce, say=work.say))


@app.command("check", epilog="Example: aggbuffer store check graph.store")
def check_store(folder: Folder, as_json: AsJson = False, debug: Debug = False) -> None:
    """Read the whole store and compare it with its checksums."""
    with session(as_json=as_json, debug=debug) as work:
        from aggbuffer.store import check

        work.interrupted = lambda: "Stopped before everything was read; nothing can be said about the store."
        _tell(work, folder, check(folder).meta)


@app.command("info", epilog="Example: aggbuffer store info graph.store")
def describe_store(folder: Folder, as_json: AsJson = False, debug: Debug = False) -> None:
    """Say what a store holds; reads next to nothing."""
    with session(as_json=as_json, debug=debug) as work:
        from aggbuffer.store import open

        _tell(work, folder, open(folder).meta)


def _tell(work: Session, folder: Path, meta: Meta) -> None:
    from aggbuffer.cli.tables import facts

    told = _described(meta)
    work.document({"store": str(folder), **told})
    work.show(facts([("store", str(folder)), *((name.replace("_", " "), _text(v)) for name, v in told.items())]))


def _described(meta: Meta) -> dict[str, Any]:
    return {
        "nodes": meta.nodes,
        "edges": meta.edges,
        "self_loops": meta.self_loops,
        "duplicates_dropped": meta.duplicates_dropped,
        "features": meta.features,
        "undirected": meta.undirected,
        "bytes": sum(file.bytes for file in meta.files.values()),
        "arrays": sorted(name.removesuffix(".npy") for name in meta.files),
    }


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return ("yes" if value else "no") if isinstance(value, bool) else f"{value:,}"
