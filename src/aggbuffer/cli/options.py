"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_INPUT, _OUTPUT = "Input", "Output"

GraphPath = Annotated[
    Path,
    typer.Option(
        "--graph",
        "-g",
        help="A PyG Data saved with torch.save (.pt), an .npz file, a folder of edges.csv and nodes.csv (or .parquet), "
        "or a graph store.",
        rich_help_panel=_INPUT,
    ),
]
ModelSpec = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        help="What builds the trained GNN: package.module:factory or file.py:factory. The factory is called with the "
        "graph if it takes a parameter.",
        rich_help_panel=_INPUT,
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(
        "--weights",
        "-w",
        help="The GNN's state_dict, as .safetensors or saved with torch.save, unless the factory loads it.",
        rich_help_panel=_INPUT,
    ),
]
BufferPath = Annotated[
    Path | None, typer.Option("--buffer", "-b", help="A buffer file for this GNN.", rich_help_panel=_INPUT)
]
Split = Annotated[
    int,
    typer.Option("--split", min=0, help="Which split, where a file's masks hold several.", rich_help_panel=_INPUT),
]
EdgeLoss = Annotated[
    float,
    typer.Option(
        "--edge-loss",
        min=0,
        max=1,
        help="Share of the edges that you expect to be missing in use; the report tells what the buffer does there.",
        rich_help_panel=_OUTPUT,
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document instead of tables.", rich_help_panel=_OUTPUT)
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress, only results and errors.", rich_help_panel=_OUTPUT)
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=_OUTPUT)]
