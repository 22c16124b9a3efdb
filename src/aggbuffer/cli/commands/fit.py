"""``aggbuffer fit``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aggbuffer.cli.options import AsJson, Debug, GraphPath, ModelSpec, Quiet, Split, Weights
from aggbuffer.cli.session import Session, session
from aggbuffer.config import BufferConfig, FitConfig

if TYPE_CHECKING:
    from aggbuffer.report import Run
    from aggbuffer.scale.ranks import Ranks

EXAMPLE = (
    "Example: aggbuffer fit --graph cora.pt --model model.py:build --weights gcn.safetensors "
    "--out cora.aggbuffer.safetensors --report cora.html"
)
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
        str, _setting(told="Leave self-loops as they are (kept), or redraw their weights with the edges (redrawn).")
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
        from aggbuffer.cli.inputs import check_writable, read_inputs
        from aggbuffer.report import fit_and_judge, write_report
        from aggbuffer.scale.distributed import joined

        with joined(rank_timeout) as ranks:
            if ranks.rank == 0:
                check_writable(out, report, checkpoint, inputs=(graph, weights))
            data, gnn = read_inputs(graph, model, weights, split=split)
            work.interrupted = lambda: _if_interrupted(out, checkpoint)
            if ranks.rank > 0:
                _help(gnn, data, config, buffer_config, checkpoint)
                return

            def saved() -> None:
                work.interrupted = lambda: f"Stopped; {out} was written, but before and after were not compared."

            run = fit_and_judge(
                gnn,
                data,
                out,
                config=config,
                buffer_config=buffer_config,
                diagnosed=report is not None and _can_diagnose(work, data, ranks),
                progress=not quiet,
                checkpoint=checkpoint,
                say=work.say,
                saved=saved,
            )
        record = run.to_dict(title=f"{type(gnn).__name__} on {graph.name}", load_code=_load_code(out, model))
        if report is not None:
            write_report(report, record)
        work.document(record)
        _show(work, run, report)


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


def _show(work: Session, run: Run, report: Path | None) -> None:
    from aggbuffer.cli.tables import comparison_table

    if run.comparison is not None:
        work.show(comparison_table(run.comparison))
    work.show(f"Buffer: {run.file}")
    if report is not None:
        work.show(f"Report: {report}")


def _if_interrupted(out: Path, checkpoint: Path | None) -> str:
    if checkpoint is not None and checkpoint.exists():
        return f"Stopped; {checkpoint} keeps what was learned. Run the same command again to go on from there."
    hint = "" if checkpoint else " With --checkpoint PATH a run can go on."
    return f"Stopped; nothing was kept and {out} was not written.{hint}"


def _load_code(out: Path, model: str) -> str:
    return f"""import aggbuffer as ab

# gnn: the base model, built by {model}, with its own weights
model = ab.load(gnn, {str(out)!r})
logits = model(data.x, data.edge_index)"""
