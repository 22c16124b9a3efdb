"""Random changes of a graph and of activations, from generators of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.data import Data

from aggbuffer.config import Directions
from aggbuffer.graph import Graph


def drop_edge(graph: Graph, share: float, generator: torch.Generator, *, directions: Directions = "together") -> Data:
    """DropEdge: the graph without a random share of its edges, in the user's own format.

    Self-loops stay. Both directions of an undirected edge go ``"together"`` or are drawn ``"independent"``-ly.
    """
    return graph.subgraph(keep_mask(graph, share, generator, directions=directions))


def keep_mask(graph: Graph, share: float, generator: torch.Generator, *, directions: Directions = "together") -> Tensor:
    """Which edges survive DropEdge, ``[E]`` bool."""
    together = directions == "together"
    draws = torch.rand(graph.num_links if together else graph.num_edges, generator=generator, device=generator.device)
    kept = (draws >= share).to(graph.source.device)
    return (kept[graph.link] if together else kept) | graph.is_loop


def redrawn_loops(graph: Graph, share: float, generator: torch.Generator) -> Tensor:
    """What the self-loops weigh in the authors' perturbed graph, ``[N]``: 1 with probability ``share``, else 2."""
    draws = torch.rand(graph.num_nodes, generator=generator, device=generator.device)
    return (1.0 + (draws >= share).to(graph.x.dtype)).to(graph.x.device)


def dropout(x: Tensor, ratio: float, generator: torch.Generator | None) -> Tensor:
    """Zero a share ``ratio`` of the entries of ``x`` and scale the rest, so that the mean stays."""
    return DropoutMask.draw(x, ratio, generator).apply(x)


@dataclass(frozen=True)
class DropoutMask:
    """Which entries stay.

    Eight bytes of the mask come out of each 64-bit draw, which is several times faster than one draw an entry. The
    share is therefore rounded to 1/256, and the scale is that of the rounded share.

    Attributes:
        draws: A byte an entry, a quarter of the size of a mask of numbers; an entry stays from the threshold on.
        threshold: In 256ths.
    """

    draws: Tensor
    threshold: int

    @classmethod
    def draw(cls, x: Tensor, ratio: float, generator: torch.Generator | None) -> DropoutMask:
        """A mask for the entries of ``x``."""
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64, device=x.device)
        words.random_(-(2**63), None, generator=generator)
        return cls(words.view(torch.uint8)[: x.numel()].view(x.shape), cls.threshold_of(ratio))

    @staticmethod
    def threshold_of(ratio: float) -> int:
        """The threshold that drops a share ``ratio`` of the entries."""
        return min(round(ratio * 256), 255)

    def apply(self, x: Tensor) -> Tensor:
        """``x * mask``, with a gradient."""
        return cast(Tensor, _Dropped.apply(x, self))  # type: ignore[no-untyped-call]

    def numbers(self, dtype: torch.dtype) -> Tensor:
        """0 and the scale of what stays, in the shape of the draws."""
        # Written as numbers at once: a product with a bool mask converts it entry by entry, twenty times as slowly.
        mask = torch.empty(self.draws.shape, dtype=dtype, device=self.draws.device)
        return torch.ge(self.draws, self.threshold, out=mask).mul_(256.0 / (256 - self.threshold))


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: DropoutMask) -> Tensor:
        ctx.mask = mask
        return x * mask.numbers(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.mask.numbers(gradients[0].dtype), None


def generator_on(device: torch.device, seed: int) -> torch.Generator:
    """A generator of the library's own on the device of the model."""
    return torch.Generator(device=device).manual_seed(seed)


def nested_removal(
    graph: Graph, shares: Sequence[float], repeats: int, seed: int
) -> Iterator[tuple[float, Iterator[Data]]]:
    """For each share of undirected edges to keep, graphs with exactly that share left, drawn ``repeats`` times.

    Within a draw the graphs are nested: what 25 % keep, 50 % keep too. Shares of 1 and 0 leave nothing to chance and
    come once. Self-loops stay.
    """
    masks = nested_masks(graph.link.cpu(), graph.num_links, graph.is_loop.cpu(), shares, repeats, seed)
    for share, draws in masks:
        yield share, (graph.subgraph(mask.to(graph.source.device)) for mask in draws)


def nested_masks(
    link: Tensor, num_links: int, is_loop: Tensor, shares: Sequence[float], repeats: int, seed: int
) -> Iterator[tuple[float, Iterator[Tensor]]]:
    """What :func:`nested_removal` keeps of the edges, ``[E]`` bool.

    Args:
        link: ``[E]`` the number of each edge's link.
        num_links: How many links there are.
        is_loop: ``[E]`` which edges are self-loops.
        shares: Of the links to keep.
        repeats: How many draws.
        seed: Of the draws.
    """
    generator = generator_on(torch.device("cpu"), seed)
    looped = torch.zeros(num_links, dtype=torch.bool)
    looped[link[is_loop]] = True
    removable = int((~looped).sum())
    ranks = []
    for _ in range(repeats):
        order = torch.rand(num_links, generator=generator)
        order[looped] = -1.0
        rank = torch.empty(num_links, dtype=torch.int32)
        rank[order.argsort()] = torch.arange(num_links, dtype=torch.int32)
        ranks.append(rank.sub_(int(looped.sum())))  # self-loops come first, so their ranks fall below every threshold

    def draws(share: float) -> Iterator[Tensor]:
        for rank in ranks[:1] if share in (0, 1) else ranks:
            yield (rank < round(share * removable)).index_select(0, link)

    for share in shares:
        yield share, draws(share)
