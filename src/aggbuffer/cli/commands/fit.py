"""``aggbuffer fit``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aggbuffer.cli.interrupts import BetweenEpochs
from aggbuffer.cli.options import AsJson, Debug, EdgeLoss, GraphPath, ModelSpec, Quiet, Split, Weights
from aggbuffer.cli.session import Session, session
from aggbuffer.config import BufferConfig, FitConfig

if TYPE_CHECKING:
    from aggbuffer.report import Run
    from aggbuffer.scale.ranks import Ranks

EXAMPLE = (
    "Example: aggbuffer fit --graph cora.pt --model model.py:build --weights gcn.safetensors "
    "--out cora.aggbuffer.safetensors --report cora.html"
)
RECORD, EVENTS = "run.json", "events.jsonl"
_TRAINING, _BUFFER, _OUTPUT = "Training", "Buffer", "Output"


def _setting(*names: str, told: str, panel: str = _TRAINING) -> Any:
    return typer.Option(*names, help=told, rich_help_panel=panel)


def fit(
    graph: GraphPath,
    model: ModelSpec,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to save the buffer.", rich_help_panel=_OUTPUT)],
    weights: Weights = None,
    split: Split = 0,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write an HTML report.", rich_help_panel=_OUTPUT)
    ] = None,
    edge_loss: EdgeLoss = 0.5,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run",
            help="Folder for run.json and events.jsonl.",
            show_default="beside --out, ending in .run",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    log: Annotated[
        list[str],
        typer.Option(
            "--log",
            metavar="KIND=FOLDER",
            help="Log also to tensorboard, mlflow or wandb; may be given several times.",
            show_default=False,
            rich_help_panel=_OUTPUT,
        ),
    ] = [],  # noqa: B006 (typer copies it)
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", help="A file to go on from after an interruption.", rich_help_panel=_OUTPUT),
    ] = None,
    drop_edge: Annotated[float, _setting(told="Share of edges each step's graph loses, 0 to 1.")] = FitConfig.drop_edge,
    strength: Annotated[float, _setting(told="Weight of the robustness term.")] = FitConfig.strength,
    dropout: Annotated[
        float, _setting(told="Dropout before every layer but the first, from 0 to below 1.")
    ] = FitConfig.dropout,
    lr: Annotated[float, _setting(told="Learning rate.")] = FitConfig.lr,
    patience: Annotated[int, _setting(told="Epochs without improvement before stopping.")] = FitConfig.patience,
    max_epochs: Annotated[int, _setting(told="The most epochs.")] = FitConfig.max_epochs,
    monitor: Annotated[
        str, _setting(told="What to stop on: val_loss, val_accuracy, or rc_loss, which needs no labels.")
    ] = FitConfig.monitor,
    seed: Annotated[int, _setting(told="Everything random follows from it.")] = FitConfig.seed,
    loss: Annotated[
        str, _setting(told="rc, or an ablation: rc_train, cross_entropy, pseudo_label, self_distillation.")
    ] = FitConfig.loss,
    task: Annotated[
        str, _setting(told="auto reads it off the labels: multiclass, multilabel or regression.")
    ] = FitConfig.task,
    directions: Annotated[
        str, _setting(told="Drop both directions of an edge together, or independent of each other.")
    ] = FitConfig.directions,
    self_loops: Annotated[
        str,
        _setting(told="auto tries both: self-loops left alone (kept), or weighed more in perturbed graphs (redrawn)."),
    ] = FitConfig.self_loops,
    detach_target: Annotated[
        bool, _setting("--detach-target", told="No gradient through the clean side of the robustness term.")
    ] = FitConfig.detach_target,
    accelerate: Annotated[
        bool, _setting("--accelerate/--no-accelerate", told="Take the fast path where there is one.")
    ] = FitConfig.accelerate,
    batch_size: Annotated[
        int | None, _setting(told="Train on mini-batches of so many nodes, for graphs too large for one pass.")
    ] = None,
    fanout: Annotated[
        int | None, _setting(told="How many in-edges of a node a mini-batch samples; all without it.")
    ] = None,
    clusters: Annotated[
        int | None, _setting(told="Cut the graph into so many parts; a mini-batch is a union of some.")
    ] = None,
    parts: Annotated[
        int | None, _setting(told="Into how many parts a mini-batch is divided: more take less memory; 4 without it.")
    ] = None,
    rank_timeout: Annotated[
        float, _setting(told="Under torchrun: seconds until a process that does not answer counts as gone.")
    ] = 600.0,
    site: Annotated[
        str, _setting(told="Where the buffer acts: aggregation or output.", panel=_BUFFER)
    ] = BufferConfig.site,
    block: Annotated[
        str, _setting(told="agg_b, or an ablation: single, jknet, residual, agg.", panel=_BUFFER)
    ] = BufferConfig.block,
    bias: Annotated[bool, _setting("--bias", told="Add a bias.", panel=_BUFFER)] = BufferConfig.bias,
    weighted_degree: Annotated[
        bool, _setting("--weighted-degree", told="Sum edge weights instead of counting edges.", panel=_BUFFER)
    ] = BufferConfig.weighted_degree,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Fit a buffer to a trained GNN and save it.

    Compares before and after on the test nodes, where the graph has labels and a test_mask.
    """
    settings = locals()
    with session(as_json=as_json, quiet=quiet, debug=debug) as work:
        given = {"seeds": batch_size, "fanout": fanout, "clusters": clusters, "parts": parts}
        settings["batch"] = {name: value for name, value in given.items() if value is not None} or None
        config = FitConfig.from_dict({name: settings[name] for name in FitConfig().to_dict()})
        buffer_config = BufferConfig.from_dict({name: settings[name] for name in BufferConfig().to_dict()})
        from aggbuffer.callbacks import Callback
        from aggbuffer.cli.inputs import check_folder, check_writable, read_inputs
        from aggbuffer.cli.loggers import loggers
        from aggbuffer.files import write_json
        from aggbuffer.report import fit_and_judge, write_report
        from aggbuffer.scale.distributed import joined

        folder = run or _beside(out)
        stop, heard = BetweenEpochs(), list[Callback]()
        with joined(rank_timeout) as ranks:
            if ranks.rank == 0:
                check_writable(out, report, checkpoint, inputs=(graph, weights, folder / RECORD, folder / EVENTS))
                check_folder(folder, out, report, checkpoint, graph, weights)
                # Ctrl-C ends every process at once where there are several.
                heard += [*loggers(folder, log), *([stop] if ranks.size == 1 else [])]
            with work.busy("Reading the graph and the model"):
                data, gnn = read_inputs(graph, model, weights, split=split)
            if ranks.rank > 0:
                _help(gnn, data, config, buffer_config, checkpoint)
                return
            work.interrupted = lambda: _if_interrupted(out, checkpoint, folder, stop.epoch)

            def saved() -> None:
                work.interrupted = lambda: f"Stopped; {out} was written, but before and after were not compared."

            done = fit_and_judge(
                gnn,
                data,
                out,
                config=config,
                buffer_config=buffer_config,
                diagnosed=report is not None and _can_diagnose(work, data, ranks),
                edge_loss=edge_loss,
                progress=not quiet,
                checkpoint=checkpoint,
                say=work.say,
                saved=saved,
                callbacks=heard,
            )
        record = done.to_dict(title=f"{type(gnn).__name__} on {graph.name}", load_code=_load_code(out, model))
        write_json(record, folder / RECORD)
        if report is not None:
            write_report(report, record)
        work.document(record)
        _show(work, done, report, folder)


def _help(gnn: Any, data: Any, config: FitConfig, buffer_config: BufferConfig, checkpoint: Path | None) -> None:
    """What every process but the first does: its share of the training."""
    import aggbuffer

    aggbuffer.fit(aggbuffer.attach(gnn, data, buffer_config), data, config, progress=False, checkpoint=checkpoint)


def _can_diagnose(work: Session, data: Any, ranks: Ranks) -> bool:
    from aggbuffer.store import GraphStore

    if isinstance(data, GraphStore) or ranks.size > 1:
        work.say("The report has no diagnosis, which takes a graph in memory and a single process.")
        return False
    return True


def _show(work: Session, run: Run, report: Path | None, folder: Path) -> None:
    from aggbuffer.cli.tables import comparison_table

    if run.comparison is not None:
        work.show(comparison_table(run.comparison))
        work.show("")
    work.show_lines(f"Buffer: {run.file}")
    if report is not None:
        work.show_lines(f"Report: {report}")
    work.show_lines(f"Record: {folder / RECORD}\nEvents: {folder / EVENTS}")


def _beside(out: Path) -> Path:
    """``cora.run`` for ``cora.aggbuffer.safetensors``."""
    return out.with_name(out.name.removesuffix(".safetensors").removesuffix(".aggbuffer") + ".run")


def _if_interrupted(out: Path, checkpoint: Path | None, folder: Path, epoch: int) -> str:
    from aggbuffer.checkpoint import epochs_in

    stopped = f"Stopped after epoch {epoch}; {out} was not written." if epoch else f"Stopped; {out} was not written."
    log = f"The log is in {folder / EVENTS}." if epoch else ""
    if checkpoint is not None and checkpoint.exists():
        kept = f"{checkpoint} keeps the state after epoch {epochs_in(checkpoint)}."
        return f"{stopped} {kept} Run the same command again to go on from there. {log}".strip()
    hint = "" if checkpoint else " With --checkpoint PATH a run can go on."
    return f"{stopped} Of what was learned nothing was kept.{hint} {log}".strip()


def _load_code(out: Path, model: str) -> str:
    return f"""import aggbuffer as ab

# gnn: the base model, built by {model}, with its own weights
model = ab.load(gnn, {str(out)!r})
logits = model(data.x, data.edge_index)"""
