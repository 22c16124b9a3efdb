"""One run of a model over a graph: chunks of nodes and of edges, and what is known of them so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor
from torch_geometric.data import Data

from aggbuffer.buffer import AggregationBuffer
from aggbuffer.errors import GraphError
from aggbuffer.scale.draws import Draw
from aggbuffer.scale.operators import Degrees, Part, edge_cost
from aggbuffer.scale.replay import Call, Replay
from aggbuffer.scale.sampler import InEdges, Relabelling, in_edges
from aggbuffer.scale.source import GraphSource, Nodes, NodeSource, subgraph
from aggbuffer.scale.tables import Budget, chunks, part_of

if TYPE_CHECKING:
    from aggbuffer.scale.forms import Form

_COPIES = 4  # of the widest of a layer's messages, that it may hold at once
NO_ENDS = torch.empty(2, 0, dtype=torch.int64)


@dataclass(frozen=True)
class Reach:
    """The nodes that each layer concerns; None means all.

    Attributes:
        targets: Whose output is needed, by layer.
        sources: Whose input is needed.
    """

    targets: tuple[Tensor | None, ...]
    sources: tuple[Tensor | None, ...]


def reach_of(source: NodeSource, forms: Sequence[Form], nodes: Tensor | None, memory: int) -> Reach:
    targets: list[Tensor | None] = []
    sources: list[Tensor | None] = []
    wanted = None if nodes is None else torch.unique(nodes)
    for form in reversed(forms):
        targets.append(wanted)
        of = turned(source) if getattr(form, "turned", False) else source
        for _ in range(form.hops):
            wanted = _with_neighbours(of, wanted, memory // 4)
        sources.append(wanted)
    return Reach(tuple(targets[::-1]), tuple(sources[::-1]))


def _with_neighbours(source: NodeSource, nodes: Tensor | None, limit: int) -> Tensor | None:
    if nodes is None:
        return None
    reached = torch.zeros(source.num_nodes, dtype=torch.bool)
    reached[nodes] = True
    for part in chunks(edge_cost(source, nodes), limit):
        reached[in_edges(source, nodes[part]).source] = True
    return None if bool(reached.all()) else reached.nonzero().squeeze(-1)


def turned(source: NodeSource) -> NodeSource:
    """The graph with its edges turned round, which only one in memory can give."""
    if isinstance(source, GraphSource):
        return source.reversed
    raise GraphError(
        "The model has a layer with flow='target_to_source', which needs the out-edges of nodes; a graph on disk keeps "
        "in-edges only."
    )


class Sweep:
    """One run of a model over a graph, layer by layer: what the forms of its layers ask for.

    Args:
        source: The graph.
        replay: The model.
        budget: Of memory.
        draw: Which edges remain; None for all.
        reach: The nodes that each layer concerns.
        starts_with_features: Whether the first layer receives the features as they are.

    Attributes:
        kept: What the first layer aggregates, where an earlier run has left it.
    """

    kept: Tensor | None = None

    def __init__(
        self,
        source: NodeSource,
        replay: Replay,
        budget: Budget,
        draw: Draw | None,
        reach: Reach,
        starts_with_features: bool,
    ) -> None:
        self.source, self.replay, self.budget, self.draw, self.reach = source, replay, budget, draw, reach
        self.starts_with_features = starts_with_features and source.matrix is not None
        self._degrees: dict[tuple[str | None, bool], Degrees] = {}
        widths = sum(spec.in_width + spec.out_width * spec.hops for spec in replay.specs)
        self.row_cost = (source.num_features + _COPIES * widths) * torch.empty(0, dtype=source.dtype).element_size()

    def blocks(self, layer: int) -> list[AggregationBuffer]:
        """The buffers of a layer; none for a base."""
        return [] if self.replay.owner is None else self.replay.owner._blocks_of(layer)

    def degrees(self, weight: str | None, *, outwards: bool = False) -> Degrees:
        """Sums over the edges of the whole graph."""
        key = (weight, outwards)
        if key not in self._degrees:
            limit = self.budget.chunk
            self._degrees[key] = Degrees.of(self.source, weight, self.draw, limit, outwards=outwards)
        return self._degrees[key]

    def term(self, layer: int, block: int, hidden: Sequence[Tensor], nodes: Nodes, weight: str | None) -> Tensor:
        """The term of a layer's block for some nodes, ``[n, width]``."""
        assert self.replay.owner is not None
        inverse = self.degrees(weight).inverse(nodes, weighted=self.replay.owner.config.weighted_degree)
        return cast(Tensor, self.blocks(layer)[block](hidden, inverse))

    def data_of(self, nodes: Nodes) -> Data:
        """Some nodes without edges."""
        return subgraph(self.source, nodes, NO_ENDS, NO_ENDS[0])

    def rows(self, nodes: Tensor | None) -> Iterator[tuple[Nodes, Data]]:
        """Nodes, all for None, in chunks."""
        count = self.source.num_nodes if nodes is None else nodes.numel()
        size = max(1, self.budget.chunk // self.row_cost)
        for start in range(0, count, size):
            part = part_of(nodes, slice(start, min(start + size, count)))
            yield part, self.data_of(part)

    def sources(self, layer: int) -> Iterator[tuple[Nodes, Call]]:
        """What a layer receives, for all nodes whose input is needed."""
        for nodes, data in self.rows(self.reach.sources[layer]):
            yield nodes, self.replay.call(layer, data, nodes)

    def targets(self, layer: int, *, inner: bool = False) -> Iterator[tuple[Part, Call]]:
        """Targets with their in-edges, and what the layer receives for them.

        With ``inner``, for one of several hops in a layer, all nodes whose input is needed are targets; at the rim,
        where their own neighbours' is not, they get numbers that nobody reads.
        """
        nodes = (self.reach.sources if inner else self.reach.targets)[layer]
        for part in chunks(edge_cost(self.source, nodes) + self.row_cost, self.budget.chunk):
            chosen = part_of(nodes, part)
            yield (
                Part.of(self.source, chosen, self.draw),
                self.replay.call(layer, self.data_of(chosen), chosen),
            )

    def surroundings(self, layer: int, hops: int, is_turned: bool) -> Iterator[tuple[Nodes, Data, Tensor]]:
        """Targets, and the part of the graph that a layer needs to compute them, in which they come first."""
        source = turned(self.source) if is_turned else self.source
        draw = self.draw.turned() if self.draw is not None and is_turned else self.draw
        spec, places = self.replay.specs[layer], Relabelling(source.num_nodes)
        width = _COPIES * 2 * max(spec.in_width, spec.out_width, self.replay.tables[-1].size(1) if layer else 0)
        an_edge = width * torch.empty(0, dtype=source.dtype).element_size() + self.row_cost
        nodes = self.reach.targets[layer]
        counts = source.pointer.diff() if nodes is None else source.pointer[nodes + 1] - source.pointer[nodes]
        for part in chunks(counts * an_edge + self.row_cost, self.budget.chunk):
            chosen = part_of(nodes, part)
            first = torch.arange(chosen.start, chosen.stop) if isinstance(chosen, slice) else chosen
            rows, ends, edges = _surrounding(source, first, hops, draw, places)
            ends = ends.flip(0) if is_turned else ends
            yield chosen, subgraph(source, rows, ends, edges), rows


def _surrounding(
    source: NodeSource, targets: Tensor, hops: int, draw: Draw | None, places: Relabelling
) -> tuple[Tensor, Tensor, Tensor]:
    """Nodes within some hops of the targets, all in-edges but those of the last, and these edges' numbers."""
    places.append(targets)
    found: list[tuple[InEdges, Tensor]] = []
    frontier = targets
    for _ in range(hops):
        part = in_edges(source, frontier)
        target = frontier[part.target()]
        if draw is not None:
            kept = draw.kept(part.source, target, part.edge)
            part, target = InEdges(part.pointer, part.source[kept], part.edge[kept]), target[kept]
        found.append((part, target))
        frontier = places.add(part.source)
    column = places.places(torch.cat([part.source for part, _ in found]))
    row = places.places(torch.cat([target for _, target in found]))
    edges = torch.cat([part.edge for part, _ in found])
    nodes = places.finish()
    if source.layout != "edge_index":
        order = (row * nodes.numel() + column).argsort()
        row, column, edges = row[order], column[order], edges[order]
    return nodes, torch.stack([column, row]), edges
