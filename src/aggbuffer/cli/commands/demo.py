"""``aggbuffer demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aggbuffer.cli.options import AsJson, Debug, EdgeLoss, Quiet
from aggbuffer.cli.session import session

EXAMPLE = "Example: aggbuffer demo --out demo-out"


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the report and the files.")] = Path("demo-out"),
    edge_loss: EdgeLoss = 0.5,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """See all of it in under a minute, on a graph that comes with the package.

    Trains a GNN, diagnoses it, fits a buffer, compares before and after, and writes a report.
    """
    with session(as_json=as_json, quiet=quiet, debug=debug) as work:
        from aggbuffer.cli.inputs import make_folder
        from aggbuffer.cli.tables import comparison_table
        from aggbuffer.demo import BASE, BUFFER, EVENTS, GRAPH, RECORD, REPORT, load_code, run_demo

        make_folder(out)
        work.interrupted = lambda: f"Stopped; what was finished is in {out}. Run the same command to start anew."
        run, record = run_demo(out, progress=not quiet, say=work.say, edge_loss=edge_loss)
        work.document(record)
        assert run.comparison is not None
        work.show(comparison_table(run.comparison))
        written = {"Report": REPORT, "Buffer": BUFFER, "Record": RECORD, "Events": EVENTS}
        work.show_lines("\n".join(f"{what}: {out / name}" for what, name in written.items()))
        work.show("\nLoad the buffer:")
        work.show_lines(_indented(load_code(out)))
        inputs = f"--graph {out / GRAPH} \\\n  --model aggbuffer.demo:build_base --weights {out / BASE}"
        work.show("\nNext, the same with a graph and a model of your own:")
        work.show_lines(_indented(f"aggbuffer fit {inputs} \\\n  --out my.aggbuffer.safetensors --report my.html"))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
