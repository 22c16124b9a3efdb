"""A part of the graph that a training step runs on: seeds, what reaches them, and what is known of the whole graph."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.data import Data

from aggbuffer.graph import Graph
from aggbuffer.scale.hashing import SAMPLE, key_of
from aggbuffer.scale.sampler import InEdges, Relabelling, in_edges
from aggbuffer.scale.source import NodeSource, pointer_of, subgraph


@dataclass(frozen=True, eq=False)
class Batch:
    """Nodes and edges of one step, numbered anew.

    Attributes:
        nodes: ``[n]`` their numbers in the whole graph; the seeds, which the loss is computed on, come first.
        num_seeds: How many.
        pointer: ``[n + 1]`` where the in-edges of each node start; nodes at the rim have none here.
        column: ``[e]`` the place of each edge's source.
        edge: ``[e]`` the edges' numbers in the whole graph; None where a loader does not tell them.
        degree: ``[n]`` float32, in-degrees without self-loops in the whole graph.
        total: ``[n]`` how many in-edges each node has in the whole graph, self-loops included.
        complete: Whether every node but those at the rim has all its in-edges here.
        beyond: In-edges of the last nodes, those at the rim, of which only the ends are known; where there are any.
        data: What the model is called with.
    """

    nodes: Tensor
    num_seeds: int
    pointer: Tensor
    column: Tensor
    edge: Tensor | None
    degree: Tensor
    total: Tensor
    complete: bool
    beyond: InEdges | None
    data: Data

    @cached_property
    def target(self) -> Tensor:
        """``[e]`` the place of each edge's target."""
        return torch.repeat_interleave(self.pointer.diff(), output_size=self.column.numel())

    @cached_property
    def graph(self) -> Graph:
        """The same as a graph of its own."""
        return Graph(self.data, self.column, self.target)


class Sampler:
    """Makes batches of sampled neighbourhoods.

    Args:
        source: The graph.
        hops: How often the model aggregates, and so how far the neighbourhoods reach.
        fanout: How many in-edges of a node are sampled; None for all.
        seed: Of the samples.
        sees_rim: Whether to look at the in-edges of nodes at the rim too, which tell their degree on perturbed graphs.
    """

    def __init__(self, source: NodeSource, hops: int, fanout: int | None, seed: int, *, sees_rim: bool) -> None:
        self.source, self.hops, self.fanout, self.seed, self.sees_rim = source, hops, fanout, seed, sees_rim
        self._places = Relabelling(source.num_nodes)

    def batch(self, seeds: Tensor, step: int) -> Batch:
        """The batch of ``seeds``; what is sampled follows from the seed, the step and the node."""
        key = key_of(self.seed, step, SAMPLE)
        self._places.append(seeds)
        found: list[InEdges] = []
        frontier = seeds
        for _ in range(self.hops):
            found.append(in_edges(self.source, frontier, self.fanout, key))
            frontier = self._places.add(found[-1].source)
        beyond = in_edges(self.source, frontier, self.fanout, key) if self.sees_rim else None
        source = torch.cat([part.source for part in found])
        column, edge = self._places.places(source), torch.cat([part.edge for part in found])
        nodes = self._places.finish()
        counts = torch.cat([*(part.pointer.diff() for part in found), torch.zeros_like(frontier)])
        pointer = pointer_of(counts)
        return made(self.source, nodes, seeds.numel(), pointer, column, edge, self.fanout is None, beyond)


class Union:
    """Makes batches of all edges among given nodes.

    Args:
        source: The graph.
    """

    def __init__(self, source: NodeSource) -> None:
        self.source = source
        self._places = Relabelling(source.num_nodes)

    def batch(self, nodes: Tensor, step: int) -> Batch:
        """The batch of ``nodes``, all of which are seeds; nothing in it is random."""
        self._places.append(nodes)
        found = in_edges(self.source, nodes)
        column = self._places.places(found.source)
        self._places.finish()
        inside = column >= 0
        counts = torch.bincount(found.target()[inside], minlength=nodes.numel())
        column, edge = column[inside], found.edge[inside]
        return made(self.source, nodes, nodes.numel(), pointer_of(counts), column, edge, False, None)


def made(
    source: NodeSource,
    nodes: Tensor,
    num_seeds: int,
    pointer: Tensor,
    column: Tensor,
    edge: Tensor,
    complete: bool,
    beyond: InEdges | None,
) -> Batch:
    """A batch with its features, attributes and degrees; the arguments are the attributes of :class:`Batch`."""
    target = torch.repeat_interleave(pointer.diff(), output_size=column.numel())
    if source.layout != "edge_index":  # whose entries are sorted by the batch's own numbers
        order = (target * nodes.numel() + column).argsort()
        column, edge = column[order], edge[order]
    data = subgraph(source, nodes, torch.stack([column, target]), edge)
    total = source.pointer[nodes + 1] - source.pointer[nodes]
    return Batch(nodes, num_seeds, pointer, column, edge, source.degree[nodes], total, complete, beyond, data)
