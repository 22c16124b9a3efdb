"""``aggbuffer report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aggbuffer.cli.options import AsJson, Debug, Quiet
from aggbuffer.cli.session import session

EXAMPLE = "Example: aggbuffer report demo-out other-run/run.json --out report.html"


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="A run.json, or a folder that holds one; several to compare.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the page.")] = Path("report.html"),
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Draw the report of a run again, or several runs side by side.

    Everything comes from the record that each run left; nothing is measured anew.
    """
    with session(as_json=as_json, quiet=quiet, debug=debug) as work:
        from aggbuffer.errors import ConfigError
        from aggbuffer.files import write_bytes
        from aggbuffer.report.page import render, render_several
        from aggbuffer.report.reading import read_record, record_file

        if out.resolve() in {record_file(path).resolve() for path in runs}:
            raise ConfigError(f"{out} is named twice; the page must be a file of its own.")
        records = [(str(path), read_record(path)) for path in runs]
        page = render(records[0][1], records[0][0]) if len(records) == 1 else render_several(records)
        write_bytes(page.encode(), out)
        work.document({"report": str(out), "runs": [str(path) for path in runs], "bytes": len(page.encode())})
        work.show_lines(f"Report: {out}")
