"""Perturbed graphs by counting, and which edges of any part of the graph they keep."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from aggbuffer.config import Directions
from aggbuffer.perturb import DropoutMask
from aggbuffer.scale.hashing import DROP, DROPOUT, LOOP, below, key_of, words


class Draw(Protocol):
    """One perturbed graph."""

    @property
    def weighs_loops(self) -> bool:
        """Whether self-loops have weights."""
        ...

    def kept(self, source: Tensor, target: Tensor, edges: Tensor | slice) -> Tensor:
        """Which edges it has, ``[e]`` bool, by their ends and numbers in the whole graph."""
        ...

    def loops(self, nodes: Tensor, dtype: torch.dtype) -> Tensor | None:
        """What the self-loop that a layer adds weighs at each node, ``[n]``; None for 1."""
        ...

    def turned(self) -> Draw:
        """The same of the graph whose edges are turned round."""
        ...


@dataclass(frozen=True)
class DropEdge:
    """DropEdge whose draw for a link depends on its two ends, the seed and the step alone.

    Attributes:
        seed: Of the run.
        step: Which draw.
        share: Of the edges that go.
        directions: Whether both directions of an edge go together.
        weighs_loops: Whether self-loops weigh 1 with probability ``share`` and 2 otherwise.
    """

    seed: int
    step: int
    share: float
    directions: Directions = "together"
    weighs_loops: bool = False
    is_turned: bool = False

    def kept(self, source: Tensor, target: Tensor, edges: Tensor | slice) -> Tensor:
        key = key_of(self.seed, self.step, DROP)
        if self.directions == "together":
            gone = below(key, self.share, torch.minimum(source, target), torch.maximum(source, target))
        else:
            ends = (target, source) if self.is_turned else (source, target)
            gone = below(key, self.share, *ends)
        return gone.logical_not_().logical_or_(source == target)

    def loops(self, nodes: Tensor, dtype: torch.dtype) -> Tensor | None:
        if not self.weighs_loops:
            return None
        return 2.0 - below(key_of(self.seed, self.step, LOOP), self.share, nodes).to(dtype)

    def turned(self) -> Draw:
        return replace(self, is_turned=not self.is_turned)


@dataclass(frozen=True, eq=False)
class Kept:
    """A perturbed graph given by the edges that it keeps.

    Attributes:
        mask: ``[E]`` bool by the numbers of the edges.
        mask_turned: The same by their numbers in the graph turned round; where a layer asks for that.
    """

    mask: Tensor
    mask_turned: Tensor | None = None
    weighs_loops = False

    def kept(self, source: Tensor, target: Tensor, edges: Tensor | slice) -> Tensor:
        return self.mask[edges]

    def loops(self, nodes: Tensor, dtype: torch.dtype) -> Tensor | None:
        return None

    def turned(self) -> Draw:
        assert self.mask_turned is not None
        return Kept(self.mask_turned, self.mask)


@dataclass(frozen=True, eq=False)
class HashedDropout:
    """Dropout masks of the passes of one step, which depend on the nodes' numbers and not on the batch they are in.

    Attributes:
        key: Of the step and the pass.
        nodes: ``[n]`` numbers in the whole graph of the rows to be masked.
    """

    key: int
    nodes: Tensor

    @classmethod
    def of(cls, seed: int, step: int, which: int, nodes: Tensor) -> HashedDropout:
        """For pass number ``which`` of a step."""
        return cls(key_of(seed, step, DROPOUT, which), nodes)

    def mask(self, layer: int, x: Tensor, ratio: float) -> DropoutMask:
        """The mask for what layer number ``layer`` receives, ``x`` ``[n, width]``; 64 bits are eight entries of it."""
        width = x.size(1)
        block = torch.arange((width + 7) // 8)
        drawn = words(key_of(self.key, layer), self.nodes.cpu().unsqueeze(-1), block)
        bytes_of = drawn.view(torch.uint8).view(x.size(0), -1)[:, :width].contiguous()
        return DropoutMask(bytes_of.to(x.device), DropoutMask.threshold_of(ratio))
