"""``aggbuffer evaluate`` and ``aggbuffer diagnose``."""

from __future__ import annotations

from typing import Annotated

import typer

from aggbuffer.cli.options import AsJson, BufferPath, Debug, GraphPath, ModelSpec, Quiet, Split, Weights
from aggbuffer.cli.session import session
from aggbuffer.errors import ConfigError

_INPUTS = "--graph cora.pt --model model.py:build --weights gcn.safetensors"
EVALUATE_EXAMPLE = f"Example: aggbuffer evaluate {_INPUTS} --buffer cora.aggbuffer.safetensors"
DIAGNOSE_EXAMPLE = f"Example: aggbuffer diagnose {_INPUTS}"

Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the edges that are removed.")]
Repeats = Annotated[int, typer.Option("--repeats", min=1, help="Draws of removed edges to average over.")]
Task = Annotated[str, typer.Option("--task", help="auto, multiclass, multilabel or regression.")]


def evaluate(
    graph: GraphPath,
    model: ModelSpec,
    weights: Weights = None,
    buffer: BufferPath = None,
    split: Split = 0,
    mask: Annotated[str, typer.Option("--mask", help="Which nodes: the name of a mask in the graph.")] = "test_mask",
    keep: Annotated[str, typer.Option("--keep", help="Shares of edges to keep.")] = "1,0.75,0.5,0.25,0",
    seed: Seed = 0,
    repeats: Repeats = 3,
    task: Task = "auto",
    memory: Annotated[
        str | None,
        typer.Option("--memory", help="Run layer by layer in so much memory beyond the graph, as in 4GiB."),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Score a GNN: overall, by degree, by agreement of the neighbours, and as edges go.

    With a buffer, scores before and after it.
    """
    with session(as_json=as_json, quiet=quiet, debug=debug) as work:
        import aggbuffer
        from aggbuffer.cli.inputs import read_inputs
        from aggbuffer.cli.tables import comparison_table, evaluation_table
        from aggbuffer.config import FitConfig
        from aggbuffer.text import bytes_of

        shares, wanted = _shares(keep), FitConfig.from_dict({"task": task}).task
        limit = None if memory is None else bytes_of(memory)
        data, gnn = read_inputs(graph, model, weights, split=split, buffer=buffer)

        def score() -> aggbuffer.Evaluation:
            return aggbuffer.evaluate(
                gnn, data, mask=mask, keep=shares, seed=seed, repeats=repeats, task=wanted, memory=limit
            )

        if not isinstance(gnn, aggbuffer.BufferedGNN):
            alone = score()
            work.document({"base": alone.to_dict()})
            work.show(evaluation_table(alone))
            return
        with gnn.disabled():
            before = score()
        after = score()
        comparison = aggbuffer.compare(before, after)
        work.document({"base": before.to_dict(), "buffered": after.to_dict(), "comparison": comparison.to_dict()})
        work.show(comparison_table(comparison))


def diagnose(
    graph: GraphPath,
    model: ModelSpec,
    weights: Weights = None,
    buffer: BufferPath = None,
    split: Split = 0,
    drop_edge: Annotated[
        float, typer.Option("--drop-edge", min=0, max=1, help="Share of edges the layers are measured without.")
    ] = 0.5,
    seed: Seed = 0,
    repeats: Repeats = 3,
    task: Task = "auto",
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Find out, without labels, how fragile a GNN is when edges go, and whether a buffer would pay."""
    with session(as_json=as_json, quiet=quiet, debug=debug) as work:
        import aggbuffer
        from aggbuffer.cli.inputs import read_inputs
        from aggbuffer.cli.tables import diagnosis_tables
        from aggbuffer.config import FitConfig

        wanted = FitConfig.from_dict({"task": task}).task
        data, gnn = read_inputs(graph, model, weights, split=split, buffer=buffer)
        diagnosis = aggbuffer.diagnose(gnn, data, drop_edge=drop_edge, repeats=repeats, seed=seed, task=wanted)
        work.document(diagnosis.to_dict())
        work.show(f"A buffer is {diagnosis.verdict}. {diagnosis.in_words()}", *diagnosis_tables(diagnosis))


def _shares(keep: str) -> list[float]:
    try:
        shares = [float(part) for part in keep.split(",")]
    except ValueError:
        raise ConfigError(f"--keep is {keep!r}; expected shares in [0, 1] such as 1,0.5,0.") from None
    return list(dict.fromkeys(shares))
