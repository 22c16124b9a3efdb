"""``aggbuffer sweep``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aggbuffer.cli.options import AsJson, Debug, GraphPath, ModelSpec, Quiet, Split, Weights
from aggbuffer.cli.session import Session, session
from aggbuffer.config import FitConfig

if TYPE_CHECKING:
    from aggbuffer.sweep import SweepResult

EXAMPLE = (
    "Example: aggbuffer sweep --graph cora.pt --model model.py:build --weights gcn.safetensors --out cora-sweep "
    "--workers 2"
)
_SEARCH, _FIXED, _OUTPUT = "Search", "Settings of every fit", "Output"


def _option(*names: str, told: str, panel: str = _SEARCH, **more: Any) -> Any:
    return typer.Option(*names, help=told, rich_help_panel=panel, **more)


def sweep(
    graph: GraphPath,
    model: ModelSpec,
    out: Annotated[
        Path,
        _option("--out", "-o", told="A folder for the best buffer, the tables and the page.", panel=_OUTPUT),
    ],
    weights: Weights = None,
    split: Split = 0,
    space: Annotated[
        Path | None,
        _option(
            "--space",
            told="A .json or .toml file: for each setting of fit a list of choices, or low, high and log. By default "
            "the paper's 48 combinations of strength, drop_edge and dropout.",
        ),
    ] = None,
    trials: Annotated[
        int | None,
        _option("--trials", told="How many points to try: by default all of a grid, 50 of anything else.", min=1),
    ] = None,
    workers: Annotated[int, _option("--workers", told="Processes on this machine.", min=1)] = 1,
    storage: Annotated[
        str | None,
        _option(
            "--storage",
            told="Where the trials are kept: the path of a journal file, or postgresql://user@host/database for many "
            "machines. By default a journal file in the folder of --out.",
            envvar="AGGBUFFER_STORAGE",
        ),
    ] = None,
    name: Annotated[str, _option("--name", told="Of the study in the storage.")] = "sweep",
    seed: Annotated[
        int, _option("--seed", told="Of every fit, and of the order in which points are tried.", min=0)
    ] = FitConfig.seed,
    prune: Annotated[
        bool, _option("--prune/--no-prune", told="Give up fits that are worse than the median of those before.")
    ] = True,
    lost_after: Annotated[
        float,
        _option(
            "--lost-after",
            told="Seconds without a sign of life after which a worker counts as lost, in PostgreSQL.",
            min=2,
        ),
    ] = 60.0,
    lr: Annotated[float | None, _option("--lr", told="Learning rate.", panel=_FIXED)] = None,
    patience: Annotated[
        int | None, _option("--patience", told="Epochs without improvement before stopping.", panel=_FIXED)
    ] = None,
    max_epochs: Annotated[int | None, _option("--max-epochs", told="The most epochs.", panel=_FIXED)] = None,
    monitor: Annotated[
        str | None,
        _option("--monitor", told="What fits stop on and are compared by: val_loss, val_accuracy.", panel=_FIXED),
    ] = None,
    report: Annotated[
        Path | None, _option("--report", told="Write the page here too, besides sweep.html.", panel=_OUTPUT)
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Search the settings of fit on validation nodes, with any number of workers.

    Run it again to go on after an interruption, and at the same time elsewhere, with the same --storage, to share the
    work.
    """
    fixed = {"lr": lr, "patience": patience, "max_epochs": max_epochs, "monitor": monitor}
    with session(as_json=as_json, quiet=quiet, debug=debug) as work:
        from aggbuffer.extras import require
        from aggbuffer.sweep.processes import Task, helpers
        from aggbuffer.sweep.space import Space
        from aggbuffer.sweep.storage import told_place

        require("optuna", "sweep", "A search")
        searched = Space.of(space)
        options: dict[str, Any] = {
            "space": searched,
            "trials": trials,
            "storage": storage,
            "name": name,
            "seed": seed,
            "prune": prune,
            "lost_after": lost_after,
            **{setting: value for setting, value in fixed.items() if value is not None},
        }
        work.interrupted = lambda: (
            f"Stopped; finished trials are kept in {told_place(storage, out)}. Run the same command again to go on."
        )
        from aggbuffer.cli.inputs import check_writable, make_folder, read_inputs

        make_folder(out)
        check_writable(report, inputs=(graph, weights))
        task = Task(graph, model, weights, split, out, options)
        threads = _threads(workers)
        with helpers(task, workers - 1, threads) as beside:
            import torch

            import aggbuffer

            if workers > 1:
                torch.set_num_threads(threads)
            data, gnn = read_inputs(graph, model, weights, split=split)
            result = aggbuffer.sweep(gnn, data, out, progress=not quiet, **options)
            for problem in beside.wait():
                work.say(f"A worker failed, the others did its share. {problem}")
        if report is not None:
            from aggbuffer.files import write_bytes

            write_bytes(result.page.read_bytes(), report)
        work.document(result.to_dict())
        _show(work, result, report)


def _show(work: Session, result: SweepResult, report: Path | None) -> None:
    from aggbuffer.cli.tables import facts
    from aggbuffer.sweep.board import MONITORS, score_text, value_text

    best, progress = result.best, result.progress
    assert best.score is not None
    settings = ", ".join(f"{name} {value_text(value)}" for name, value in best.settings.items())
    counts = [("pruned", progress.pruned), ("failed", progress.failed), ("attempts lost", progress.lost)]
    told = "".join(f", {count} {word}" for word, count in counts if count)
    work.show(
        facts(
            [
                ("Tried", f"{progress.points} points: {progress.complete} complete{told}"),
                ("Best", f"{settings} (trial {best.number})"),
                (MONITORS[result.monitor].capitalize(), score_text(best.score, result.monitor)),
                ("Buffer", str(result.file)),
                ("Page", str(report or result.page)),
            ]
        )
    )


def _threads(workers: int) -> int:
    """Threads for each of several workers: their share of the cores, unless the user has said how many."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) else max(1, (os.cpu_count() or 1) // workers)
