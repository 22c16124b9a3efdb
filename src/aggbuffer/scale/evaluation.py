"""What an evaluation is made of, observed layer by layer in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from aggbuffer.config import TaskName
from aggbuffer.errors import GraphError
from aggbuffer.evaluate import Observed, chosen_nodes
from aggbuffer.forward import Forward
from aggbuffer.perturb import nested_masks
from aggbuffer.scale.draws import Draw, DropEdge, Kept
from aggbuffer.scale.layerwise import Layerwise
from aggbuffer.scale.operators import edge_cost
from aggbuffer.scale.sampler import in_edges
from aggbuffer.scale.source import GraphSource, NodeSource
from aggbuffer.scale.tables import chunks
from aggbuffer.scores import predict
from aggbuffer.targets import Labels


def observed(
    model: nn.Module,
    source: NodeSource,
    mask: str | Tensor,
    shares: Sequence[float],
    repeats: int,
    seed: int,
    forward: Forward | None,
    task: TaskName,
    memory: int | None,
) -> Observed:
    """Predictions on the graph and with edges removed; the arguments are those of ``evaluate``."""
    nodes = chosen_nodes(source, mask, source.num_nodes).cpu()
    inference = Layerwise(model, source, memory=memory, nodes=nodes, forward=forward)
    labels = Labels.of(source.get("y"), source.num_nodes, inference.plan.outputs, nodes, task)

    def predicted(draw: Draw | None) -> Tensor:
        logits = inference.logits(draw)
        if not bool(torch.isfinite(logits).all()):
            raise GraphError("The model's outputs on this graph hold NaN or infinite values; check its weights.")
        return predict(logits, labels.task)

    full = predicted(None)
    turns = any(getattr(form, "turned", False) for form in inference.plan.forms)
    removed = {
        share: torch.stack([full if share == 1 else predicted(draw) for draw in draws])
        for share, draws in removals(source, shares, repeats, seed, turns=turns)
    }
    agreement = agreement_at(source, labels, nodes, inference.memory // 4)
    return Observed(nodes, labels, full, removed, source.degree[nodes], agreement)


def removals(
    source: NodeSource, shares: Sequence[float], repeats: int, seed: int, *, turns: bool = False
) -> Iterator[tuple[float, Iterator[Draw]]]:
    """Nested draws of removed edges, as :func:`aggbuffer.perturb.nested_removal` has them for a graph in memory.

    On disk, an edge goes by a draw for its two ends, so that a share is kept in expectation.

    Args:
        source: The graph.
        shares: Of the links to keep.
        repeats: How many draws.
        seed: Of the draws.
        turns: Whether the model has a layer that asks for the graph turned round.
    """
    if isinstance(source, GraphSource):
        masks = nested_masks(source.link, source.num_links, source.is_loop, shares, repeats, seed)
        for share, draws in masks:
            yield share, (_kept(source, mask, turns) for mask in draws)
        return
    for share in shares:
        count = 1 if share in (0, 1) else repeats
        yield share, (DropEdge(seed, number, 1 - share) for number in range(count))


def _kept(source: GraphSource, mask: Tensor, turns: bool) -> Draw:
    if not turns:
        return Kept(mask)
    of_graph = torch.empty_like(mask)
    of_graph[source.order] = mask
    return Kept(mask, of_graph[source.reversed.order])


def agreement_at(source: NodeSource, labels: Labels, nodes: Tensor, limit: int) -> Tensor:
    """What :func:`aggbuffer.evaluate.neighbour_agreement` says of some nodes, a chunk of edges at a time, ``[M]``."""
    if labels.task != "multiclass":
        return torch.full((nodes.numel(),), math.nan)
    parts = [torch.empty(0)]
    for part in chunks(edge_cost(source, nodes), limit):
        found, some = in_edges(source, nodes[part]), nodes[part]
        target = found.target()
        theirs = labels.values[found.source]
        counted = (found.source != some[target]) & (theirs >= 0)
        same = counted & (theirs == labels.values[some[target]])
        total, agreeing = (torch.zeros(some.numel()).index_add_(0, target, flags.float()) for flags in (counted, same))
        parts.append(agreeing / total)  # 0 / 0 is the NaN that is meant
    return torch.cat(parts)
