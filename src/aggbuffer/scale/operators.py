"""Aggregations that are linear, over the whole graph, a chunk of targets at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import ChebConv

from aggbuffer.fast.csr import Csr
from aggbuffer.scale.draws import Draw
from aggbuffer.scale.sampler import in_edges
from aggbuffer.scale.source import Nodes, NodeSource
from aggbuffer.scale.tables import chunks

_EDGE = 96  # bytes that an edge takes while it is looked at


@dataclass(frozen=True, eq=False)
class Part:
    """All in-edges of some nodes, or those that a draw keeps.

    Attributes:
        nodes: Which.
        pointer: ``[n + 1]``.
        column: ``[e]`` sources, int32 or int64.
        target: ``[e]`` int64; both by their numbers in the whole graph.
        edges: The edges' numbers.
    """

    nodes: Nodes
    pointer: Tensor
    column: Tensor
    target: Tensor
    edges: Nodes

    @classmethod
    def of(cls, source: NodeSource, nodes: Nodes, draw: Draw | None = None) -> Part:
        if isinstance(nodes, slice):
            first = int(source.pointer[nodes.start])
            pointer = source.pointer[nodes.start : nodes.stop + 1] - first
            edges: Nodes = slice(first, first + int(pointer[-1]))
            column, numbers = source.column[edges], torch.arange(nodes.start, nodes.stop)
        else:
            found = in_edges(source, nodes)
            pointer, column, edges, numbers = found.pointer, found.source, found.edge, nodes
        target = torch.repeat_interleave(numbers, pointer.diff(), output_size=column.numel())
        part = cls(nodes, pointer, column, target, edges)
        return part if draw is None else part.only(draw.kept(column.long(), target, edges))

    def only(self, kept: Tensor) -> Part:
        """Some of its edges, ``kept`` ``[e]`` bool."""
        counts = torch.zeros(kept.numel() + 1, dtype=torch.int64)
        torch.cumsum(kept, 0, out=counts[1:])
        at = kept.nonzero().squeeze(-1)
        edges = at + self.edges.start if isinstance(self.edges, slice) else self.edges[at]
        return Part(self.nodes, counts[self.pointer], self.column[at], self.target[at], edges)


@dataclass(frozen=True, eq=False)
class Degrees:
    """Sums over the in-edges of every node of a graph, or of what a draw leaves of it.

    Attributes:
        count: ``[N]`` how many in-edges but self-loops.
        weight: ``[N]`` their weights.
        out: ``[N]`` the weights of the out-edges but self-loops; None if nobody asked.
        loop: ``[N]`` the weight of the graph's own self-loop, 0 where there is none; None if there are none at all.
        loops: ``[N]`` what the self-loops that layers add weigh under the draw; None for 1.
    """

    count: Tensor
    weight: Tensor
    out: Tensor | None
    loop: Tensor | None
    loops: Tensor | None

    @classmethod
    def of(
        cls, source: NodeSource, weight: str | None, draw: Draw | None, memory: int, *, outwards: bool = False
    ) -> Degrees:
        """One pass over the edges, or none where the graph knows them."""
        dtype, count = source.dtype, source.num_nodes
        loops = None if draw is None else draw.loops(torch.arange(count), dtype)
        known = source.degree.to(dtype)
        if weight is None and draw is None and not outwards and not source.has_loops:
            return cls(known, known, None, None, loops)
        sums = {name: torch.zeros(count, dtype=dtype) for name in ("count", "weight", "out", "loop")}
        for nodes in chunks(source.pointer.diff() * _EDGE, memory):
            part = Part.of(source, nodes, draw)
            column = part.column.long()
            is_loop = column == part.target
            values = _weights(source, weight, part, dtype)
            sums["count"].index_add_(0, part.target, (~is_loop).to(dtype))
            sums["weight"].index_add_(0, part.target, values * ~is_loop)
            sums["loop"].index_add_(0, part.target, values * is_loop)
            if outwards:
                sums["out"].index_add_(0, column, values * ~is_loop)
        loop = sums["loop"] if source.has_loops else None
        return cls(sums["count"], sums["weight"], sums["out"] if outwards else None, loop, loops)

    def inverse(self, nodes: Nodes, *, weighted: bool) -> Tensor:
        """The buffers' 1 / (D + 1), ``[n, 1]``."""
        degree = (self.weight if weighted else self.count)[nodes]
        return (1.0 / (degree + (1.0 if self.loops is None else self.loops[nodes]))).unsqueeze(-1)


def _weights(source: NodeSource, name: str | None, part: Part, dtype: torch.dtype) -> Tensor:
    if name is None:
        return torch.ones(part.column.numel(), dtype=dtype)
    return source.edge_values(name, part.edges).to(dtype).view(-1)


@dataclass(frozen=True, eq=False)
class Operator:
    """The matrix with entries ``left[v] · w(u → v) · right[u]``, and a diagonal.

    Attributes:
        left: ``[N]`` or None for 1.
        right: ``[N]`` or None for 1.
        diagonal: ``[N]`` or None for 0.
        skips_loops: Whether the graph's own self-loops are left out.
        weight: The attribute of edges that is w; None for 1.
    """

    left: Tensor | None
    right: Tensor | None
    diagonal: Tensor | None
    skips_loops: bool
    weight: str | None

    def rows(self, source: NodeSource, part: Part, matrix: Tensor) -> Tensor:
        """The product with ``matrix`` ``[N, width]`` at the nodes of ``part``, ``[n, width]``."""
        if self.skips_loops and source.has_loops:
            part = part.only(part.column != part.target)
        values = None if self.weight is None else _weights(source, self.weight, part, matrix.dtype)
        if self.right is not None:
            scale = self.right[part.column]
            values = scale if values is None else values.mul_(scale)
        out = Csr(part.pointer.int(), part.column.int(), values) @ matrix
        if self.left is not None:
            out.mul_(self.left[part.nodes].unsqueeze(-1))
        if self.diagonal is not None:
            out.addcmul_(self.diagonal[part.nodes].unsqueeze(-1), matrix[part.nodes])
        return out


def gcn_operator(degrees: Degrees, weight: str | None, *, adds_loops: bool, fill: float = 1.0) -> Operator:
    """PyG's ``gcn_norm``: a self-loop keeps its weight where there is one, and gets ``fill`` elsewhere."""
    if not adds_loops:
        total = degrees.weight if degrees.loop is None else degrees.weight + degrees.loop
        root = _root(total)
        return Operator(root, root, None, False, weight)
    loop = torch.full_like(degrees.weight, fill if weight is not None else 1.0)
    if weight is not None and degrees.loop is not None:
        loop = torch.where(degrees.loop != 0, degrees.loop, loop)
    if degrees.loops is not None:
        loop = loop * degrees.loops
    root = _root(degrees.weight + loop)
    return Operator(root, root, root * root * loop, True, weight)


def sum_operator(weight: str | None) -> Operator:
    """All in-edges, self-loops of the graph included."""
    return Operator(None, None, None, False, weight)


def mean_operator(degrees: Degrees) -> Operator:
    """The mean over all in-edges, self-loops of the graph included; 0 without any."""
    total = degrees.count if degrees.loop is None else degrees.count + degrees.loop
    return Operator(1.0 / total.clamp(min=1), None, None, False, None)


def chebyshev_operator(conv: ChebConv, degrees: Degrees, weight: str | None) -> Operator:
    """The scaled Laplacian of a ChebConv, whose degrees are those of sources."""
    assert degrees.out is not None
    out, ones = degrees.out, torch.ones_like(degrees.out)
    if conv.normalization == "sym":
        left: Tensor | None = _root(out)
        right, diagonal = left, ones
    elif conv.normalization == "rw":
        inverse = 1.0 / out
        left, right, diagonal = None, inverse.masked_fill(inverse.isinf(), 0), ones
    else:
        left, right, diagonal = None, None, out
    scale = 1.0 / diagonal.max()  # 2 / λ, where PyG takes twice the largest entry for λ
    left = (ones if left is None else left) * -scale
    return Operator(left, right, diagonal * scale - 1.0, True, weight)


def of_hops(conv: Any, degrees: Degrees, weight: str | None) -> Operator:
    """What a K-hop layer propagates with."""
    if isinstance(conv, ChebConv):
        return chebyshev_operator(conv, degrees, weight)
    if not getattr(conv, "normalize", True):
        return sum_operator(weight)
    return gcn_operator(degrees, weight, adds_loops=bool(getattr(conv, "add_self_loops", False)))


def _root(degree: Tensor) -> Tensor:
    root = degree.pow(-0.5)
    return root.masked_fill(root.isinf(), 0)


def edge_cost(source: NodeSource, nodes: Tensor | None) -> Tensor:
    """Bytes that the in-edges of each of some nodes take while they are looked at, ``[n]``."""
    counts = source.pointer.diff() if nodes is None else source.pointer[nodes + 1] - source.pointer[nodes]
    return counts * _EDGE
