"""In-edges of some nodes, all or a sample: seeded, without replacement, and the same for a node in whatever company."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from aggbuffer.scale.hashing import uniform
from aggbuffer.scale.source import NodeSource, pointer_of


@dataclass(frozen=True, eq=False)
class InEdges:
    """In-edges of some nodes, in the order of the nodes.

    Attributes:
        pointer: ``[n + 1]`` where each node's edges start.
        source: ``[e]`` int64, by its number in the whole graph.
        edge: ``[e]`` the edges' numbers in the whole graph.
    """

    pointer: Tensor
    source: Tensor
    edge: Tensor

    def target(self) -> Tensor:
        """``[e]`` the place of each edge's target among the nodes."""
        return torch.repeat_interleave(self.pointer.diff(), output_size=self.edge.numel())


def in_edges(source: NodeSource, nodes: Tensor, fanout: int | None = None, key: int = 0) -> InEdges:
    """In-edges of ``nodes``, at most ``fanout`` of each.

    Which ones are taken follows from ``key`` and the node alone. Every set of that size is equally likely.

    Args:
        source: The graph.
        nodes: ``[n]``.
        fanout: None for all.
        key: From :func:`~aggbuffer.scale.hashing.key_of`.
    """
    first = source.pointer[nodes]
    counts = source.pointer[nodes + 1] - first
    taken = counts if fanout is None else counts.clamp(max=fanout)
    pointer = pointer_of(taken)
    place = torch.arange(int(pointer[-1])) - torch.repeat_interleave(pointer[:-1], taken)
    if fanout is not None and (larger := (counts > fanout).nonzero().squeeze(-1)).numel():
        at = pointer[larger].unsqueeze(-1) + torch.arange(fanout)
        place[at] = _without_replacement(nodes[larger], counts[larger], fanout, key)
    edge = torch.repeat_interleave(first, taken).add_(place)
    return InEdges(pointer, source.column[edge].long(), edge)


def _without_replacement(nodes: Tensor, counts: Tensor, size: int, key: int) -> Tensor:
    """``size`` different whole numbers below each node's count, ``[n, size]``, in order.

    Floyd's algorithm: number j is drawn from those up to ``count - size + j``, and where it has been chosen before,
    that limit itself is taken, which cannot have been.
    """
    chosen = torch.empty(nodes.numel(), size, dtype=torch.int64)
    for j in range(size):
        limit = counts - size + j
        number = torch.full_like(nodes, j)
        drawn = (uniform(key, nodes, number) * (limit + 1)).long()
        again = (chosen[:, :j] == drawn.unsqueeze(-1)).any(-1)
        chosen[:, j] = torch.where(again, limit, drawn)
    return chosen.sort(-1).values


class Relabelling:
    """Places of nodes in a batch, by their numbers in the graph; one thread at a time."""

    def __init__(self, num_nodes: int) -> None:
        self._place = torch.full((num_nodes,), -1, dtype=torch.int32)
        self._parts: list[Tensor] = []
        self._count = 0

    def add(self, nodes: Tensor) -> Tensor:
        """Those of ``nodes`` that are new, each once and in order, which now have a place."""
        new = torch.unique(nodes[self._place[nodes] < 0])
        self.append(new)
        return cast(Tensor, new)

    def append(self, nodes: Tensor) -> None:
        """Give places to nodes that are new and each there once."""
        self._place[nodes] = torch.arange(self._count, self._count + nodes.numel(), dtype=torch.int32)
        self._count += nodes.numel()
        self._parts.append(nodes)

    def places(self, nodes: Tensor) -> Tensor:
        """int64; -1 for a node without."""
        return self._place[nodes].long()

    def finish(self) -> Tensor:
        """All nodes by their places; the next batch can begin."""
        nodes = torch.cat(self._parts)
        self._place[nodes] = -1
        self._parts, self._count = [], 0
        return nodes
