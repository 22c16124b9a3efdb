"""The graph sorted once, and views of it with some edges dropped that need no sorting."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from aggbuffer.fast.sparse import Csr, product, row_pointer
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
        by_source = (source[order] * graph.num_nodes + target[order]).argsort()
        self.by_source = by_source
        self.source_pointer = row_pointer(torch.bincount(source, minlength=graph.num_nodes))

    def kept(self, mask: Tensor | None) -> Tensor | None:
        """Which entries remain, ``[nnz]`` bool, of a mask over the graph's edges."""
        if mask is None:
            return None
        return mask[self.edge] | (self.edge < 0)


class View:
    """The graph of one pass.

    Args:
        graph: The whole graph.
        patterns: Its sorted entries; ``patterns[True]`` with a self-loop at every node.
        mask: The edges that remain, ``[E]`` bool; None for all.
        data: The graph in the user's format, which the model is called with.
        symmetric: Whether every edge that remains has its reverse.
        loops: What the self-loop of each node weighs, ``[N]``, where a layer adds one and in the degree; None for 1.
    """

    def __init__(
        self,
        graph: Graph,
        patterns: dict[bool, Pattern],
        mask: Tensor | None,
        data: Data,
        *,
        symmetric: bool,
        loops: Tensor | None = None,
    ) -> None:
        self.graph, self.patterns, self.mask, self.data, self.loops = graph, patterns, mask, data, loops
        edges = data.get("edge_index")
        self.edges: Tensor = edges if edges is not None else data.adj_t
        self.symmetric = symmetric
        self._matrices: dict[tuple[bool, bool, Norm], Csr] = {}

    @property
    def is_whole(self) -> bool:
        return self.mask is None

    @cached_property
    def inverse_degree(self) -> Tensor:
        """1 / (D + 1), ``[N, 1]``."""
        return (1.0 / self._degree(loops=True)).unsqueeze(-1)

    def propagate(self, x: Tensor, norm: Norm, *, loops: bool) -> Tensor:
        """The product of this graph's normalised adjacency with ``x`` ``[N, width]``."""
        # A symmetric matrix is its own transpose.
        symmetric = norm != "mean" and self.symmetric
        matrix = self._matrix(loops, False, norm)
        return product(matrix, lambda: matrix if symmetric else self._matrix(loops, True, norm), x)

    def _matrix(self, loops: bool, transposed: bool, norm: Norm) -> Csr:
        key = (loops, transposed, norm)
        if key not in self._matrices:
            pointer, column, row = self._entries(loops=loops, transposed=transposed)
            self._matrices[key] = Csr(pointer, column, self._values(norm, loops, row, column, transposed))
        return self._matrices[key]

    def _entries(self, *, loops: bool, transposed: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Row pointers, columns and rows of the remaining entries."""
        pattern = self.patterns[loops]
        row, column, pointer = pattern.row, pattern.column, pattern.pointer
        kept = pattern.kept(self.mask)
        if transposed:
            row, column, pointer = column[pattern.by_source], row[pattern.by_source], pattern.source_pointer
            kept = None if kept is None else kept[pattern.by_source]
        if kept is None:
            return pointer, column, row
        before = torch.zeros(kept.numel() + 1, dtype=torch.int32)
        torch.cumsum(kept, 0, dtype=torch.int32, out=before[1:])
        at = kept.nonzero().squeeze(-1)
        return before[pointer], column[at], row[at]

    def _values(self, norm: Norm, loops: bool, row: Tensor, column: Tensor, transposed: bool) -> Tensor | None:
        if norm == "sum":
            return None
        degree = self._degree(loops=loops)
        if norm == "mean":
            return (1.0 / degree.clamp(min=1.0))[column if transposed else row]
        scale = degree.rsqrt()
        values = scale[row] * scale[column]
        if loops and self.loops is not None:
            values = values * torch.where(row == column, self.loops[row], 1.0)
        return values

    def _degree(self, *, loops: bool) -> Tensor:
        """How much each node receives, ``[N]``, in the dtype of the features."""
        pointer, _, _ = self._entries(loops=loops, transposed=False)
        degree = pointer.diff().to(self.graph.x.dtype)
        return degree if self.loops is None or not loops else degree - 1 + self.loops
