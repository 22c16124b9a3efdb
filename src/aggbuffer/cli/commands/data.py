"""``aggbuffer data list`` and ``aggbuffer data get``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aggbuffer.cli.options import AsJson, Debug, Quiet
from aggbuffer.cli.session import session

app = typer.Typer(no_args_is_help=True, help="Benchmark graphs: which there are, and how to get them.")

Root = Annotated[
    Path | None,
    typer.Option("--root", help="A folder in PyG's layout (DIR/Cora/raw/…) to look in first; it is only read."),
]
Cache = Annotated[
    Path | None,
    typer.Option("--cache", help="Where downloads go and stay.", show_default="$AGGBUFFER_DATA or ~/.cache/aggbuffer"),
]


@app.command("list", epilog="Example: aggbuffer data list")
def list_graphs(
    root: Root = None, cache: Cache = None, quiet: Quiet = False, as_json: AsJson = False, debug: Debug = False
) -> None:
    """List the benchmark graphs, and which of them are on this machine."""
    with session(as_json=as_json, quiet=quiet, debug=debug) as work:
        from aggbuffer.cli.tables import table
        from aggbuffer.data import BENCHMARKS, available

        here = set(available(root, cache=cache))
        work.document(
            [
                {
                    "name": b.name,
                    "nodes": b.nodes,
                    "edges": b.edges,
                    "features": b.features,
                    "classes": b.classes,
                    "splits": b.protocol,
                    "megabytes": b.megabytes,
                    "here": b.name in here,
                    "description": b.description,
                }
                for b in BENCHMARKS
            ]
        )
        work.show(
            table(
                ["name", "nodes", "edges", "features", "classes", "splits", "MB", "here"],
                [
                    [
                        b.name,
                        f"{b.nodes:,}",
                        "–" if b.edges is None else f"{b.edges:,}",
                        f"{b.features:,}",
                        str(b.classes),
                        b.protocol,
                        f"{b.megabytes:,.1f}",
                        "yes" if b.name in here else "",
                    ]
                    for b in BENCHMARKS
                ],
            ),
            "Edges count both directions. Get one: aggbuffer data get Cora --save cora.npz",
        )


@app.command("get", epilog="Example: aggbuffer data get Cora --save cora.npz")
def get_graph(
    name: Annotated[str, typer.Argument(help="Of the graph; see aggbuffer data list.", show_default=False)],
    root: Root = None,
    cache: Cache = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="Also write it as an .npz file that --graph reads.")
    ] = None,
    split: Annotated[int, typer.Option("--split", min=0, help="Which split's masks to save.")] = 0,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Get a benchmark graph: from a local folder, where it was published, or the package index."""
    with session(as_json=as_json, quiet=quiet, debug=debug) as work:
        from aggbuffer.cli.graphs import write_graph
        from aggbuffer.cli.inputs import check_writable
        from aggbuffer.data import find, get, load
        from aggbuffer.errors import ConfigError

        if save is not None and save.suffix != ".npz":
            raise ConfigError(f"--save is {save}; expected a name that ends in .npz.")
        check_writable(save)
        work.interrupted = lambda: (
            "Stopped; files that had arrived whole are kept. Run the same command again to go on."
        )
        graph = find(name)
        folder = get(graph.name, root, cache=cache, report=work.say)
        if save is not None:
            write_graph(save, load(graph.name, root, cache=cache, split=split))
        work.document({"name": graph.name, "folder": str(folder), "saved": None if save is None else str(save)})
        work.show_lines(f"{graph.name}: {folder}" if save is None else f"{graph.name}: {folder}\nGraph: {save}")
