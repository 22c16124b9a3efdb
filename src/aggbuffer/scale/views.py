"""A batch as the graph of a pass: sums over sampled in-edges that stand for all, and degrees of the whole graph."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from aggbuffer.fast.csr import Csr, by_rows, product
from aggbuffer.fast.views import Norm, View
from aggbuffer.scale.batch import Batch
from aggbuffer.scale.draws import Draw
from aggbuffer.scale.sampler import InEdges


@dataclass(frozen=True, eq=False)
class Remaining:
    """What a perturbation leaves of a batch.

    Attributes:
        mask: ``[e]`` bool, which of the batch's edges.
        degree: ``[n]`` float32, the degree D~ of every node in the perturbed whole graph. Of a node of which all
            in-edges were looked at it is exact; of others it is D times the share that remains of the sampled ones.
        loops: ``[n]`` what self-loops weigh, or None.
    """

    mask: Tensor
    degree: Tensor
    loops: Tensor | None

    @classmethod
    def of(cls, batch: Batch, draw: Draw, share: float) -> Remaining:
        """What ``draw`` leaves.

        Args:
            batch: The batch.
            draw: It decides by the numbers of nodes alone, so D~ of a node is the same in every batch.
            share: Of the edges that go, for the degree of a node of whose edges nothing is known.
        """
        source, target = batch.nodes[batch.column], batch.nodes[batch.target]
        edges = batch.edge if batch.edge is not None else slice(0)
        mask = draw.kept(source, target, edges)
        counted = source != target
        seen, left = _per_node(counted, batch.pointer), _per_node(counted & mask, batch.pointer)
        if batch.beyond is not None and batch.beyond.pointer.numel() > 1:
            of_rim = _rim(batch.beyond, batch.nodes, draw)
            seen[-of_rim[0].numel() :], left[-of_rim[0].numel() :] = of_rim
        estimate = torch.where(seen > 0, batch.degree * left / seen.clamp(min=1), batch.degree * (1 - share))
        degree = torch.where(seen == batch.degree, left.float(), estimate)
        return cls(mask, degree, draw.loops(batch.nodes, batch.data.x.dtype))


def _per_node(flags: Tensor, pointer: Tensor) -> Tensor:
    """How many of each node's edges are flagged, ``[n]``."""
    before = torch.zeros(flags.numel() + 1, dtype=torch.int64)
    torch.cumsum(flags, 0, out=before[1:])
    return before[pointer].diff()


def _rim(beyond: InEdges, nodes: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
    target = nodes[-(beyond.pointer.numel() - 1) :][beyond.target()]
    counted = beyond.source != target
    kept = draw.kept(beyond.source, target, beyond.edge)
    return _per_node(counted, beyond.pointer), _per_node(counted & kept, beyond.pointer)


class BatchView(View):
    """A batch, or what a perturbation leaves of it, as the graph of a pass.

    Every sampled in-edge of a node weighs as many as it stands for, so that an aggregation over the sample is that over
    all in-edges in expectation. Degrees are those of the whole graph, D~ where it is perturbed.

    Args:
        batch: The batch.
        remaining: None for the clean pass.
    """

    def __init__(self, batch: Batch, remaining: Remaining | None = None) -> None:
        self.batch, self.graph = batch, batch.graph
        self.mask = None if remaining is None else remaining.mask
        self.loops = None if remaining is None else remaining.loops
        self.data = batch.data if remaining is None else batch.graph.subgraph(remaining.mask)
        edges = self.data.get("edge_index")
        self.edges = edges if edges is not None else self.data.adj_t
        degree = batch.degree if remaining is None else remaining.degree
        self._known = degree.to(batch.data.x.dtype)
        self._matrices: dict[tuple[bool, bool, Norm], Csr] = {}

    def propagate(self, x: Tensor, norm: Norm, *, loops: bool) -> Tensor:
        return product(self._matrix(loops, False, norm), lambda: self._matrix(loops, True, norm), x)

    def _matrix(self, loops: bool, transposed: bool, norm: Norm) -> Csr:
        key = (loops, transposed, norm)
        if key not in self._matrices:
            row, column, value = self._weighted(loops, norm)
            if transposed:
                order = column.argsort(stable=True)
                row, column, value = column[order], row[order], value if value is None else value[order]
            self._matrices[key] = by_rows(row, column, value, self.batch.nodes.numel())
        return self._matrices[key]

    def _weighted(self, loops: bool, norm: Norm) -> tuple[Tensor, Tensor, Tensor | None]:
        """Targets, sources and weights of the entries, by target."""
        row, column = self.batch.target, self.batch.column
        kept = self.mask
        if loops:
            kept = row != column if kept is None else kept & (row != column)
        if kept is not None:
            row, column = row[kept], column[kept]
        if norm == "mean" and not loops:
            count = torch.bincount(row, minlength=self.batch.nodes.numel()).clamp(min=1)
            return row, column, (1.0 / count.to(self._known.dtype))[row]
        value = None if self.batch.complete else self._stands_for(loops)[row]
        if loops:
            row, column, value = self._with_loops(row, column, value, weighted=norm == "sym")
        if norm == "sum":
            return row, column, value
        if norm == "mean":
            scale = self.inverse_degree.squeeze(-1)[row]
        else:
            root = self._degree(loops=loops).rsqrt()
            root = root.masked_fill(root.isinf(), 0)
            scale = root[row] * root[column]
        return row, column, scale if value is None else scale * value

    def _with_loops(
        self, row: Tensor, column: Tensor, value: Tensor | None, *, weighted: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """A self-loop after the edges of every node."""
        nodes = torch.arange(self.batch.nodes.numel())
        ends = torch.bincount(row, minlength=nodes.numel()).cumsum(0) + nodes  # where the loops go
        at = torch.arange(row.numel()) + row  # and where the edges go
        total = row.numel() + nodes.numel()
        if value is not None or (weighted and self.loops is not None):
            ones = torch.ones(total, dtype=self._known.dtype)
            ones[at] = 1.0 if value is None else value
            if weighted and self.loops is not None:
                ones[ends] = self.loops
            value = ones
        rows, columns = (torch.empty(total, dtype=torch.int64) for _ in range(2))
        rows[at], columns[at] = row, column
        rows[ends] = columns[ends] = nodes
        return rows, columns, value

    def _stands_for(self, loops: bool) -> Tensor:
        """For how many of a node's in-edges each of those here stands, ``[n]``; ``loops`` counts no self-loops."""
        batch = self.batch
        counts = batch.pointer.diff()
        total = batch.total.to(self._known.dtype)
        if loops:
            counts = _per_node(batch.column != batch.target, batch.pointer)
            total = batch.degree.to(self._known.dtype)
        return total / counts.clamp(min=1)

    @cached_property
    def inverse_degree(self) -> Tensor:
        """1 / (D + 1), ``[n, 1]``."""
        return (1.0 / self._degree(loops=True)).unsqueeze(-1)

    def _degree(self, *, loops: bool) -> Tensor:
        if not loops:
            return self._known
        return self._known + (1.0 if self.loops is None else self.loops)
