"""A trial of layer-wise inference on a small part of the graph, against an ordinary run of the model there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from aggbuffer.config import BufferConfig
from aggbuffer.errors import AggBufferError, ModelError
from aggbuffer.forward import Forward, checked_logits
from aggbuffer.graph import Graph
from aggbuffer.layers import LayerSpec, discover, evaluation_mode, explain_failure
from aggbuffer.model import BufferedGNN
from aggbuffer.scale.forms import Form, candidates
from aggbuffer.scale.hashing import PROBE, key_of
from aggbuffer.scale.replay import Call, Replay, recorded
from aggbuffer.scale.sampler import Relabelling, in_edges
from aggbuffer.scale.source import GraphSource, NodeSource, subgraph
from aggbuffer.scale.sweep import Reach, Sweep
from aggbuffer.scale.tables import Budget

_SEEDS, _FANOUT, _HOPS = 24, 6, 2
_SMALL = 512  # nodes of a graph that is tried as a whole
_FEW_EDGES = 8192
_CHUNKS = 3
_SLACK = 1000  # roundings


@dataclass(frozen=True, eq=False)
class Plan:
    """What a trial has shown.

    Attributes:
        specs: The layers in the order they run.
        forms: How each is computed.
        widths: Of their outputs.
        dtypes: Likewise.
        outputs: C.
        starts_with_features: Whether the first layer receives the features as they are.
    """

    specs: tuple[LayerSpec, ...]
    forms: tuple[Form, ...]
    widths: tuple[int, ...]
    dtypes: tuple[torch.dtype, ...]
    outputs: int
    starts_with_features: bool


def probe(source: NodeSource) -> GraphSource:
    """A small part of a graph, with some of its edges, as a graph of its own."""
    if source.num_nodes <= _SMALL and source.num_edges <= _FEW_EDGES:
        nodes = torch.arange(source.num_nodes)
        found = in_edges(source, nodes)
        ends, edges = torch.stack([found.source, found.target()]), found.edge
    else:
        nodes, ends, edges = _neighbourhood(source)
    if source.layout != "edge_index":
        order = (ends[1] * nodes.numel() + ends[0]).argsort()
        ends, edges = ends[:, order], edges[order]
    return GraphSource(Graph(subgraph(source, nodes, ends, edges), ends[0], ends[1]))


def _neighbourhood(source: NodeSource) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    some = torch.unique(torch.randint(source.num_nodes, (64 * _SEEDS,), generator=draw))
    some = some[torch.randperm(some.numel(), generator=draw)]
    linked = source.pointer[some + 1] > source.pointer[some]
    seeds = torch.cat([some[linked], some[~linked]])[:_SEEDS]
    places, frontier, parts = Relabelling(source.num_nodes), seeds, []
    places.append(seeds)
    for _ in range(_HOPS):
        found = in_edges(source, frontier, _FANOUT, key_of(PROBE))
        parts.append((found, frontier[found.target()]))
        frontier = places.add(found.source)
    column = places.places(torch.cat([found.source for found, _ in parts]))
    row = places.places(torch.cat([target for _, target in parts]))
    return places.finish(), torch.stack([column, row]), torch.cat([found.edge for found, _ in parts])


def tried(model: nn.Module, source: NodeSource, forward: Forward) -> Plan:
    """How each layer of a model is computed, as a trial has shown.

    Raises:
        ModelError: If the model cannot be run layer by layer, with the module that is the reason.
    """
    part = probe(source)
    data = part.graph.data
    base: nn.Module = model.base if isinstance(model, BufferedGNN) else model

    def run() -> Tensor:
        with model.plainly() if isinstance(model, BufferedGNN) else nullcontext():
            return checked_logits(forward(model, data), part.num_nodes)

    try:
        with evaluation_mode(model):
            specs = _specs(model, part, forward)
            calls, outputs, logits = recorded(model, specs, run)
            replay = Replay(model, specs, forward)
            ways = [  # before stubs are in place
                _ways(part, replay, layer, call, has_loops=source.has_loops) for layer, call in enumerate(calls)
            ]
            with torch.no_grad(), replay.installed():
                forms = []
                for layer in range(len(specs)):
                    replay.tables = outputs[:layer]
                    sweep = _sweep(part, replay)
                    _check_rows(base, sweep, layer, calls[layer].hidden[-1], run)
                    forms.append(_form(sweep, layer, ways[layer], outputs[layer]))
                replay.tables = outputs
                _check_rows(base, _sweep(part, replay), len(specs), logits, run)
    except AggBufferError:
        raise
    except Exception as error:
        raise explain_failure(error, part.graph, base) from error
    starts = all(call.hidden[0] is data.x for call in calls[:1])
    widths, dtypes = (tuple(out.size(1) for out in outputs), tuple(out.dtype for out in outputs))
    return Plan(tuple(specs), tuple(forms), widths, dtypes, logits.size(1), starts)


def _specs(model: nn.Module, part: GraphSource, forward: Forward) -> list[LayerSpec]:
    if isinstance(model, BufferedGNN):
        return list(model.layers)
    run = lambda: checked_logits(forward(model, part.graph.data), part.num_nodes)  # noqa: E731
    return discover(model, part.graph, run, BufferConfig(site="output"))[0]


def _sweep(part: GraphSource, replay: Replay) -> Sweep:
    everyone: tuple[Tensor | None, ...] = (None,) * len(replay.specs)
    sweep = Sweep(part, replay, Budget(2**40), None, Reach(everyone, everyone), False)
    sweep.budget.chunk = sweep.row_cost * -(-part.num_nodes // _CHUNKS)
    return sweep


def _ways(part: GraphSource, replay: Replay, layer: int, call: Call, *, has_loops: bool) -> list[Form]:
    """The forms that may suit a layer, the best first; the graph may have self-loops where the part has none."""
    owner, conv, data = replay.owner, replay.convs[layer], part.graph.data
    aggregates_term = owner is not None and owner.config.block == "agg"
    return candidates(conv, call, data, aggregates_term=aggregates_term, has_loops=has_loops)


def _form(sweep: Sweep, layer: int, ways: list[Form], expected: Tensor) -> Form:
    """The first form that gives what the layer has answered in an ordinary run."""
    spec, conv = sweep.replay.specs[layer], sweep.replay.convs[layer]
    failure: Exception | None = None
    for form in ways:
        out = torch.full_like(expected, torch.nan)
        try:
            form.run(sweep, layer, out)
        except AggBufferError:
            raise
        except Exception as error:  # a layer that cannot be run in this way; the next may do
            failure = error
            continue
        if _same(out, expected):
            return form
    raise ModelError(
        f"The layer {spec.name!r} ({type(conv).__name__}) cannot be computed for a part of the nodes, as its output "
        "depends on more than their neighbourhood; use the whole graph in one pass."
    ) from failure


def _check_rows(base: nn.Module, sweep: Sweep, layer: int, expected: Tensor, run: Callable[[], Tensor]) -> None:
    """Refuse a model whose parts before a layer, or before the logits, mix nodes."""
    replay = sweep.replay
    for rows, data in sweep.rows(None):
        tail = layer == len(replay.specs)
        found = replay.logits(data, rows) if tail else replay.call(layer, data, rows).hidden[-1]
        if _same(found, expected[rows]):
            continue
        raise ModelError(
            f"{_mixing(base, replay, layer, rows, data, run)} mixes nodes outside of message passing, so the model "
            "cannot be run for a part of them; use the whole graph in one pass."
        )


def _mixing(
    base: nn.Module,
    replay: Replay,
    layer: int,
    rows: slice | Tensor,
    data: Data,
    run: Callable[[], Tensor],
) -> str:
    """The module whose output for some nodes depends on which others there are."""
    whole: list[tuple[str, nn.Module, object]] = []
    part: list[tuple[str, nn.Module, object]] = []
    target = whole
    layers = {id(inner) for conv in replay.convs for inner in conv.modules()}

    def noting(name: str) -> Callable[..., None]:
        return lambda module, args, output: target.append((name, module, output))

    leaves = [(n, m) for n, m in base.named_modules() if n and not any(m.children()) and id(m) not in layers]
    handles = [module.register_forward_hook(noting(name)) for name, module in leaves]
    try:
        run()
        target = part
        replay.logits(data, rows) if layer == len(replay.specs) else replay.call(layer, data, rows)
    finally:
        for handle in handles:
            handle.remove()
    for (name, module, all_rows), (_, _, some) in zip(whole, part, strict=False):
        if not isinstance(all_rows, Tensor) or not isinstance(some, Tensor) or all_rows.dim() == 0:
            continue
        if all_rows.size(0) != rows_of(replay, whole) or not _same(some, all_rows[rows]):
            return f"The module {name!r} ({type(module).__name__})"
    return f"The forward of {type(base).__name__}"


def rows_of(replay: Replay, seen: list[tuple[str, nn.Module, object]]) -> int:
    """How many nodes the ordinary run had."""
    return max(t.size(0) for _, _, t in seen if isinstance(t, Tensor) and t.dim() > 0)


def _same(found: Tensor, expected: Tensor) -> bool:
    """Whether both are alike but for rounding."""
    if found.shape != expected.shape:
        return False
    if expected.numel() == 0:
        return True
    slack = min(0.05, max(1e-9, _SLACK * torch.finfo(expected.dtype).eps))
    scale = max(1.0, expected.detach().abs().nan_to_num(0, 0, 0).max().item())
    return torch.allclose(found, expected, rtol=slack, atol=slack * scale, equal_nan=True)
