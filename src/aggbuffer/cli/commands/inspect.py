"""``aggbuffer inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aggbuffer.cli.options import AsJson, Debug, Quiet
from aggbuffer.cli.session import session

if TYPE_CHECKING:
    from aggbuffer.io import BufferHeader

EXAMPLE = "Example: aggbuffer inspect cora.aggbuffer.safetensors"


def inspect(
    file: Annotated[Path, typer.Argument(help="A buffer file.", show_default=False)],
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show what a buffer file holds; needs neither the base model nor the graph."""
    with session(as_json=as_json, quiet=quiet, debug=debug) as work:
        from aggbuffer.cli.tables import facts, table
        from aggbuffer.io import read_header

        header = read_header(file)
        work.document(_described(header))
        work.show(
            facts(
                [
                    ("file", str(file)),
                    ("parameters", f"{header.num_parameters:,}"),
                    ("node features", f"{header.num_features:,}"),
                    ("base fingerprint", header.fingerprint),
                    ("base precision", header.precision),
                    (
                        "written by",
                        f"aggbuffer {header.library_version}, torch {header.torch_version}, PyG {header.pyg_version}",
                    ),
                    *((name, str(value)) for name, value in header.config.to_dict().items()),
                    *header.extra.items(),
                ]
            ),
            table(
                ["layer", "class", "acts on", "in", "out", "hops"],
                [
                    [
                        x.spec.name,
                        x.class_name,
                        x.spec.kind,
                        *map(str, (x.spec.in_width, x.spec.out_width, x.spec.hops)),
                    ]
                    for x in header.layers
                ],
                words=3,
            ),
        )


def _described(header: BufferHeader) -> dict[str, Any]:
    return {
        "library_version": header.library_version,
        "torch_version": header.torch_version,
        "pyg_version": header.pyg_version,
        "config": header.config.to_dict(),
        "num_features": header.num_features,
        "num_parameters": header.num_parameters,
        "fingerprint": header.fingerprint,
        "precision": header.precision,
        "extra": dict(header.extra),
        "layers": [
            {
                "name": layer.spec.name,
                "class": layer.class_name,
                "kind": layer.spec.kind,
                "in_width": layer.spec.in_width,
                "out_width": layer.spec.out_width,
                "hops": layer.spec.hops,
            }
            for layer in header.layers
        ],
    }
