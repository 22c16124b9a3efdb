"""DropMessage: every training step drops a random share of the entries of every layer's message matrix.

The matrix has a row for each edge and each self-loop and a column for each channel. It is never made: a view of the
graph sums the messages of a few nodes at a time. What is kept for the backward pass is one byte an entry.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aggbuffer.fast.layers import FastForm, Pass
from aggbuffer.fast.runner import FastLayers
from aggbuffer.fast.views import Norm, View
from paper.bases import GNN, Augmentation
from paper.bases.convs import RandomWalkConv
from paper.methods import Outcome, Task, gcn

_AT_ONCE = 2**16  # entries of the matrix whose temporaries stay in the cache


class DropMessage(Augmentation):
    """Messages are those of the literal layer: rows of ``x W``, never of ``x``.

    Args:
        share: Of the entries, in [0, 1], rounded to 1/256; with 1 no message is left.
    """

    def __init__(self, share: float) -> None:
        self.threshold = round(share * 256)

    def view(self, layers: FastLayers, generator: torch.Generator) -> View:
        return _LossyView(layers.whole, self.threshold, generator)

    def forms(self, gnn: GNN) -> dict[nn.Module, FastForm]:
        return super().forms(gnn) | {conv: _map_first(conv) for conv in gnn.convs}


def _map_first(conv: nn.Module) -> FastForm:
    norm: Norm = "mean" if isinstance(conv, RandomWalkConv) else "sym"

    def form(p: Pass, x: Tensor) -> Tensor:
        return p.view.propagate(p.mapped(x, cast(Any, conv).lin.weight), norm, loops=True) + cast(Any, conv).bias

    return form


class _LossyView(View):
    """The whole graph, on which every aggregation loses messages of its own."""

    def __init__(self, whole: View, threshold: int, generator: torch.Generator) -> None:
        super().__init__(whole.graph, whole.patterns, None, whole.data, symmetric=whole.symmetric)
        self.threshold, self.generator = threshold, generator

    def propagate(self, x: Tensor, norm: Norm, *, loops: bool) -> Tensor:
        pattern = self.patterns[loops]
        draws = torch.empty((pattern.column.numel() * x.size(1) + 7) // 8, dtype=torch.int64)
        draws.random_(-(2**63), None, generator=self.generator)
        draws = draws.view(torch.uint8)[: pattern.column.numel() * x.size(1)].view(-1, x.size(1))
        degree = self.inverse_degree  # of GCN's self-looped graph
        if norm == "mean":
            return degree * lossy_sum(x, self, loops, draws, self.threshold)
        return degree.sqrt() * lossy_sum(degree.sqrt() * x, self, loops, draws, self.threshold)


def lossy_sum(x: Tensor, view: View, loops: bool, draws: Tensor, threshold: int) -> Tensor:
    """The sum of the messages that each node receives, without the entries that are dropped.

    Args:
        x: What each node sends, ``[N, width]``.
        view: The graph.
        loops: Whether every node sends to itself.
        draws: ``[messages, width]`` uint8, by target; an entry stays from ``threshold`` on and makes up for the others.
        threshold: From 0, with which all stay, to 256, with which none does.
    """
    pattern = view.patterns[loops]
    by_target = _Sums(pattern.pointer, pattern.column, None)
    by_source = _Sums(pattern.source_pointer, pattern.row[pattern.by_source], pattern.by_source)
    return cast(Tensor, _LossySum.apply(x, by_target, by_source, draws, threshold))


class _LossySum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, by_target: _Sums, by_source: _Sums, draws: Tensor, threshold: int) -> Tensor:
        ctx.save_for_backward(draws)
        ctx.by_source, ctx.threshold = by_source, threshold
        return by_target.of(x, draws, threshold)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        (draws,) = ctx.saved_tensors
        return ctx.by_source.of(gradients[0], draws, ctx.threshold), None, None, None, None


class _Sums:
    """Sums over the entries of each row of a sparse matrix of ones, block by block.

    Args:
        pointer: Where each row starts, ``[N + 1]``.
        column: ``[nnz]``.
        place: Which row of the draws belongs to each entry, ``[nnz]``; None for its own number.
    """

    def __init__(self, pointer: Tensor, column: Tensor, place: Tensor | None) -> None:
        self.pointer, self.column, self.place = pointer, column, place

    def of(self, x: Tensor, draws: Tensor, threshold: int) -> Tensor:
        out = torch.zeros(self.pointer.numel() - 1, x.size(1), dtype=x.dtype)
        if threshold == 256:
            return out
        scale = 256 / (256 - threshold)
        for rows, entries in self._blocks(x.size(1)):
            messages = x.index_select(0, self.column[entries])
            drawn = draws[entries] if self.place is None else draws.index_select(0, self.place[entries])
            messages *= torch.ge(drawn, threshold, out=torch.empty_like(messages))
            offsets = self.pointer[rows.start : rows.stop + 1] - entries.start
            every = torch.arange(entries.stop - entries.start, dtype=offsets.dtype)
            out[rows] = F.embedding_bag(every, messages, offsets, mode="sum", include_last_offset=True)
        return out.mul_(scale)

    def _blocks(self, width: int) -> Iterator[tuple[slice, slice]]:
        """Rows, at least one at a time, and their entries."""
        starts, first = self.pointer.tolist(), 0
        while first < len(starts) - 1:
            limit = starts[first] + _AT_ONCE // width
            last = max(first + 1, bisect_right(starts, limit) - 1)
            yield slice(first, last), slice(starts[first], starts[last])
            first = last


def train(task: Task) -> Outcome:
    """With ``drop``, the share of entries."""
    params = task.merged(drop=0.5)
    outcome = gcn.supervised(task, "DropMessage", task.base, DropMessage(params["drop"]), params)
    return Outcome(outcome.model, outcome.record | {"degenerate": params["drop"] == 1})
