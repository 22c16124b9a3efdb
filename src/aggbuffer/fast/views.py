"""The graph sorted once, and views of it with some edges dropped that need no sorting."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from aggbuffer.fast.csr import Csr, product, row_pointer
from aggbuffer.graph import Graph

Norm = Literal["sym", "mean", "sum"]


class Pattern:
    """Where the entries of an adjacency are: by target, and the same entries by source.

    Args:
        graph: The whole graph.
        loops: Whether to replace the graph's own self-loops by one at every node, as GCN does.
    """

    def __init__(self, graph: Graph, *, loops: bool) -> None:
        nodes = torch.arange(graph.num_nodes)
        edges = torch.arange(graph.num_edges)
        source, target = graph.source, graph.target
        if loops:
            edges = edges[~graph.is_loop]
            source = torch.cat([source[edges], nodes])
            target = torch.cat([target[edges], nodes])
            edges = torch.cat([edges, torch.full_like(nodes, -1)])
        order = (target * graph.num_nodes + source).argsort()
        self.num_nodes = graph.num_nodes
        self.row, self.column = target[order].int(), source[order].int()
        self.edge = edges[order]  # the graph's edge behind each entry; -1 for an added self-loop
        self.pointer = row_pointer(torch.bincount(target, minlength=graph.num_nodes))

    @cached_property
    def by_source(self) -> Tensor:
        """The entries' numbers, sorted by source, ``[nnz]``."""
        return (self.column.long() * self.num_nodes + self.row).argsort()

    @cached_property
    def source_pointer(self) -> Tensor:
        """Where each source starts in :attr:`by_source`, ``[N + 1]``."""
        return row_pointer(torch.bincount(self.column, minlength=self.num_nodes))

    def kept(self, mask: Tensor | None) -> Tensor | None:
        """Which entries remain, ``[nnz]`` bool, of a mask over the graph's edges."""
        if mask is None:
            return None
        return mask[self.edge] | (self.edge < 0)


class Patterns(dict[bool, Pattern]):
    """Both patterns of a graph, ``[True]`` with a self-loop at every node; each made when it is first asked for."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph

    def __missing__(self, loops: bool) -> Pattern:
        self[loops] = Pattern(self.graph, loops=loops)
        return self[loops]


class View:
    """The graph of one pass.

    Args:
        graph: The whole graph.
        patterns: Its sorted entries.
        mask: The edges that remain, ``[E]`` bool; None for all.
        data: The graph in the user's format, which the model is called with.
        symmetric: Whether every edge that remains has its reverse.
        loops: What the self-loop of each node weighs, ``[N]``, where a layer adds one and in the degree; None for 1.
    """

    def __init__(
        self,
        graph: Graph,
        patterns: Patterns,
        mask: Tensor | None,
        data: Data,
        *,
        symmetric: bool,
        loops: Tensor | None = None,
    ) -> None:
        self.patterns, self.mask, self.loops, self.symmetric = patterns, mask, loops, symmetric
        self.bind(graph, data)
        self._matrices: dict[tuple[bool, bool, Norm], Csr] = {}
        self._remaining: dict[tuple[bool, bool], tuple[Tensor, Tensor | None]] = {}

    def bind(self, graph: Graph, data: Data) -> None:
        """Belong to these tensors, which may be gone between two calls of a model while what was sorted stays."""
        self.graph, self.data, self.patterns.graph = graph, data, graph
        edges = data.get("edge_index")
        self.edges: Tensor = edges if edges is not None else data.adj_t

    @property
    def is_whole(self) -> bool:
        return self.mask is None

    @property
    def num_edges(self) -> int:
        """Of those that remain."""
        return int(self.edges.size(1))

    @cached_property
    def inverse_degree(self) -> Tensor:
        """1 / (D + 1), ``[N, 1]``."""
        return (1.0 / self._degree(loops=True)).unsqueeze(-1)

    def propagate(self, x: Tensor, norm: Norm, *, loops: bool) -> Tensor:
        """The product of this graph's normalised adjacency with ``x`` ``[N, width]``."""
        if norm == "mean":  # as a sum, whose matrix is its own transpose where the graph is symmetric
            sums = self.propagate(x, "sum", loops=loops)
            count = self._inverse_count(loops)
            return sums * count if sums.requires_grad else sums.mul_(count)
        matrix = self._matrix(loops, False, norm)
        return product(matrix, lambda: matrix if self.symmetric else self._matrix(loops, True, norm), x)

    def _matrix(self, loops: bool, transposed: bool, norm: Norm) -> Csr:
        key = (loops, transposed, norm)
        if key not in self._matrices:
            pattern, (pointer, at) = self.patterns[loops], self._entries(loops=loops, transposed=transposed)
            row, column = pattern.row, pattern.column
            if transposed:
                row, column = column[pattern.by_source], row[pattern.by_source]
            column = column if at is None else column[at]
            values = None
            if norm == "sym":
                values = self._symmetric_values(loops, row if at is None else row[at], column)
            self._matrices[key] = Csr(pointer, column, values)
        return self._matrices[key]

    def _entries(self, *, loops: bool, transposed: bool) -> tuple[Tensor, Tensor | None]:
        """Where each row starts among the remaining entries, and which of the pattern's entries they are."""
        key = (loops, transposed)
        if key not in self._remaining:
            pattern = self.patterns[loops]
            pointer, kept = pattern.pointer, pattern.kept(self.mask)
            if transposed:
                pointer, kept = pattern.source_pointer, None if kept is None else kept[pattern.by_source]
            if kept is None:
                self._remaining[key] = pointer, None
            else:
                before = torch.zeros(kept.numel() + 1, dtype=torch.int32)
                torch.cumsum(kept, 0, dtype=torch.int32, out=before[1:])
                self._remaining[key] = before[pointer], kept.nonzero().squeeze(-1)
        return self._remaining[key]

    def _symmetric_values(self, loops: bool, row: Tensor, column: Tensor) -> Tensor:
        scale = self._degree(loops=loops).rsqrt()
        values = scale[row] * scale[column]
        if loops and self.loops is not None:
            values = values * torch.where(row == column, self.loops[row], 1.0)
        return values

    def _inverse_count(self, loops: bool) -> Tensor:
        """``[N, 1]``."""
        if loops:
            return self.inverse_degree
        return (1.0 / self._degree(loops=False).clamp(min=1.0)).unsqueeze(-1)

    def _degree(self, *, loops: bool) -> Tensor:
        """How much each node receives, ``[N]``, in the dtype of the features."""
        pointer, _ = self._entries(loops=loops, transposed=False)
        degree = pointer.diff().to(self.graph.x.dtype)
        return degree if self.loops is None or not loops else degree - 1 + self.loops
