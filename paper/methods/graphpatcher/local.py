"""What a two-layer GCN answers at an anchor whose own neighbourhood changes, for many anchors at once.

The literal way runs the GCN on every anchor's ego graph, changed. But cutting the messages of some neighbours to the
anchor, and giving it virtual neighbours, changes one degree: the anchor's. The first layer's aggregation elsewhere
moves by one term, and its values on the unchanged graph serve all anchors. The answers are the literal ones, degrees
being those of the whole graph, as in an ego graph of three hops.

Every aggregation weighs the message of j to i with ``receive(i) * send(j)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from aggbuffer.fast.csr import Csr, row_pointer

_AT_ONCE = 2**13  # pairs of an anchor and a neighbour


@dataclass(frozen=True)
class Net:
    """A two-layer GCN.

    Attributes:
        maps: The first layer's weight ``[H, F]``; with a residual connection, its weight below, ``[2 H, F]``.
        hidden: What becomes of the first layer's sums, ``[…, H]`` to the same.
        output: The second layer, from its aggregation and the anchor's own hidden state, ``[B, H]`` each.
        by_degree: ``(receive, send)`` of nodes with these degrees, self-loop counted.
        residual: Whether the first layer has a residual connection.
    """

    maps: Tensor
    hidden: Callable[[Tensor], Tensor]
    output: Callable[[Tensor, Tensor], Tensor]
    by_degree: Callable[[Tensor], tuple[Tensor, Tensor]]
    residual: bool = False


def symmetric(degree: Tensor) -> tuple[Tensor, Tensor]:
    """GCN's usual weights."""
    return degree.rsqrt(), degree.rsqrt()


def random_walk(degree: Tensor) -> tuple[Tensor, Tensor]:
    """The weights of a mean."""
    return degree.reciprocal(), torch.ones_like(degree)


@dataclass(frozen=True)
class Ego:
    """Anchors and their neighbours.

    Attributes:
        anchors: ``[B]``.
        near: The neighbours of all anchors, one after the other, ``[M]``.
        who: Whose neighbour each is, as a number below B, ``[M]``.
    """

    anchors: Tensor
    near: Tensor
    who: Tensor

    def numbered_anew(self) -> tuple[Tensor, Ego]:
        """The nodes that occur, and the same with their positions for their numbers."""
        nodes, at = torch.cat([self.anchors, self.near]).unique(return_inverse=True)
        return nodes, Ego(at[: self.anchors.numel()], at[self.anchors.numel() :], self.who)

    def summed(self, values: Tensor) -> Tensor:
        """Over the neighbours of each anchor, ``[B, …]`` from ``[M, …]``."""
        return values.new_zeros(self.anchors.numel(), values.size(1)).index_add(0, self.who, values)


class Surroundings:
    """The neighbourhoods of an undirected graph, whose own self-loops count as the ones that a GCN adds.

    Args:
        edge_index: ``[2, E]``.
        num_nodes: N.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        source, target = edge_index[:, edge_index[0] != edge_index[1]]
        order = (target * num_nodes + source).argsort()
        self.near = source[order]
        self.pointer = row_pointer(torch.bincount(target, minlength=num_nodes)).long()
        self.degree = (self.pointer.diff() + 1).float().unsqueeze(-1)
        self.adjacency = Csr(self.pointer, self.near, None)

    def ego(self, anchors: Tensor) -> Ego:
        """Of these nodes."""
        counts = self.pointer.diff()[anchors]
        who = torch.repeat_interleave(torch.arange(anchors.numel()), counts)
        first = self.pointer[anchors] - (counts.cumsum(0) - counts)
        return Ego(anchors, self.near[torch.arange(who.numel()) + first[who]], who)

    def chunks(self, nodes: Tensor) -> Iterator[tuple[slice, Ego]]:
        """All of the nodes, as many at a time as fit into memory; at least one."""
        ends = self.pointer.diff()[nodes].cumsum(0)
        group = ends // _AT_ONCE + torch.arange(nodes.numel()) // _AT_ONCE
        start = 0
        for size in torch.unique_consecutive(group, return_counts=True)[1].tolist():
            part = slice(start, start + size)
            yield part, self.ego(nodes[part])
            start += size

    def aggregated(self, x: Tensor, net: Net) -> Tensor:
        """A GCN's aggregation, ``[N, width]``."""
        receive, send = net.by_degree(self.degree)
        sent = send * x
        return receive * (self.adjacency @ sent + sent)


@dataclass(frozen=True)
class Seen:
    """What a net makes of a graph's nodes, K of them.

    Attributes:
        mapped: ``x W``, ``[K, H]``.
        own: What the residual connection adds, ``[K, H]``; None without.
        aggregated: The first layer's aggregation on the unchanged graph, ``[K, H]``.
        receive: ``[K, 1]``.
        send: ``[K, 1]``.
    """

    mapped: Tensor
    own: Tensor | None
    aggregated: Tensor
    receive: Tensor
    send: Tensor

    @classmethod
    def of(cls, net: Net, mapped: Tensor, around: Surroundings) -> Seen:
        """Of all nodes, from ``x maps.T``."""
        first, own = _parts(net, mapped)
        return cls(first, own, around.aggregated(first, net), *net.by_degree(around.degree))

    def only(self, nodes: Tensor) -> Seen:
        """The rows of some nodes."""
        own = None if self.own is None else self.own[nodes]
        return Seen(self.mapped[nodes], own, self.aggregated[nodes], self.receive[nodes], self.send[nodes])


def answers(net: Net, seen: Seen, ego: Ego, kept: Tensor, virtual: Tensor) -> Tensor:
    """What the net answers at the anchors.

    Args:
        net: The two-layer GCN.
        seen: What it makes of the nodes.
        ego: Whose numbers are rows of ``seen``.
        kept: 1 for neighbours whose messages reach the anchor, else 0, ``[M, 1]``.
        virtual: ``x maps.T`` of each anchor's virtual neighbours, ``[B, count, maps]``.

    Returns:
        ``[B, out]``.
    """
    around, anchors = ego.near, ego.anchors
    receive, send = net.by_degree(1 + virtual.size(1) + ego.summed(kept))
    receive_made, send_made = net.by_degree(torch.tensor(2.0))  # a virtual neighbour has the anchor and itself
    mapped, own = seen.mapped[anchors], seen.own
    made, made_own = _parts(net, virtual)

    moved = (send - seen.send[anchors]) * mapped
    at_near = torch.addcmul(seen.aggregated[around], seen.receive[around], moved[ego.who])
    at_made = receive_made * (send_made * made + (send * mapped).unsqueeze(1))
    weight = kept * seen.send[around]
    received = ego.summed(weight * seen.mapped[around]) + send_made * made.sum(1)
    at_anchor = receive * (received + send * mapped)
    if own is not None and made_own is not None:
        at_near, at_made, at_anchor = at_near + own[around], at_made + made_own, at_anchor + own[anchors]

    hidden = net.hidden(at_anchor)
    received = ego.summed(weight * net.hidden(at_near)) + send_made * net.hidden(at_made).sum(1)
    return net.output(receive * (received + send * hidden), hidden)


def _parts(net: Net, mapped: Tensor) -> tuple[Tensor, Tensor | None]:
    """Of ``x maps.T``: what is aggregated, and what the residual connection adds."""
    if not net.residual:
        return mapped, None
    first, own = mapped.chunk(2, dim=-1)
    return first, own
