"""K-hop convolutions as linear recurrences, so that a buffer can act at each of their K aggregations.

SGConv, TAGConv, ChebConv and APPNP propagate K times inside one call, and are linear in what they propagate. With the
linear map first, each is

    T(0) = first,   T(k) = scale(k) · A T(k-1) + back(k) · T(k-2) + source(k),   k = 1 … K,

where A is the layer's own normalised adjacency (or Laplacian). A buffer at hop k adds B(k) to A T(k-1). By linearity
the layer's output moves by C(K), where

    C(0) = 0,   C(k) = scale(k) · (A C(k-1) + B(k)) + back(k) · C(k-2),

so the layer itself runs untouched and a zero buffer leaves its output as it is, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.nn import APPNP, ChebConv, SGConv, TAGConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from aggbuffer.graph import is_sparse_adjacency

Propagate = Callable[[Tensor], Tensor]
Term = Callable[[int, Sequence[Tensor]], Tensor]

K_HOP = (SGConv, TAGConv, ChebConv, APPNP)


@dataclass(frozen=True)
class Recurrence:
    """One layer call as the recurrence above.

    Attributes:
        first: T(0), ``[N, width]``.
        propagate: ``[N, width] -> [N, width]``, the product with A.
        scale: scale(1) … scale(K).
        back: back(1) … back(K).
        source: source(1) … source(K), each ``[N, width]`` or None for zero.
        first_is_new: Whether T(0) differs from the layer's input, and so is worth reading beside it.
    """

    first: Tensor
    propagate: Propagate
    scale: tuple[float, ...]
    back: tuple[float, ...]
    source: tuple[Tensor | None, ...]
    first_is_new: bool = True

    @property
    def hops(self) -> int:
        return len(self.scale)

    def correction(self, term: Term) -> Tensor:
        """C(K), ``[N, width]``.

        Args:
            term: ``term(k, states)`` is B(k+1), where ``states`` are the corrected T(0) … T(k) to read.
        """
        width = self.first.size(-1)
        plain, moved = [self.first], [torch.zeros_like(self.first)]
        states = [self.first] if self.first_is_new else []
        for k in range(self.hops):
            added = term(k, states)
            if k == self.hops - 1:  # T(K) itself is the layer's own output
                aggregated_move = self.propagate(moved[-1]) if k else moved[-1]
                return self._step(k, aggregated_move + added, moved)
            if k == 0:
                aggregated, aggregated_move = self.propagate(plain[-1]), moved[-1]
            else:
                both = self.propagate(torch.cat([plain[-1], moved[-1]], dim=-1))
                aggregated, aggregated_move = both[..., :width], both[..., width:]
            source = self.source[k]
            base = self._step(k, aggregated, plain)
            plain.append(base if source is None else base + source)
            moved.append(self._step(k, aggregated_move + added, moved))
            states.append(plain[-1] + moved[-1])
        raise AssertionError("a K-hop layer has at least one hop")

    def _step(self, k: int, aggregated: Tensor, past: Sequence[Tensor]) -> Tensor:
        out = aggregated * self.scale[k] if self.scale[k] != 1 else aggregated
        return out + self.back[k] * past[-2] if self.back[k] != 0 else out


def covers(conv: torch.nn.Module) -> bool:
    """Whether a layer runs as one of the K-hop layers that are known here, and not in a subclass's own way."""
    if getattr(conv, "propagates_bias", False):
        return True
    return any(isinstance(conv, known) and type(conv).forward is known.forward for known in K_HOP)


def count(conv: torch.nn.Module) -> int:
    """How often a K-hop layer propagates in one call."""
    return len(cast(Any, conv).lins) - 1 if isinstance(conv, ChebConv) else int(cast(Any, conv).K)


def width(conv: torch.nn.Module, in_width: int) -> int:
    """Width of what a K-hop layer propagates once its linear map comes first."""
    return in_width if isinstance(conv, APPNP) else int(cast(Any, conv).out_channels)


def reads_first(conv: torch.nn.Module) -> bool:
    """Whether T(0) is something other than the layer's input."""
    return not isinstance(conv, APPNP)


def unroll(conv: torch.nn.Module, x: Tensor, edges: Tensor, weight: Tensor | None, extra: dict[str, Any]) -> Recurrence:
    """The recurrence of one call ``conv(x, edges, weight, **extra)``."""
    if isinstance(conv, ChebConv):
        return _clenshaw(conv, x, edges, weight, extra)
    propagate = normalised(cast(Any, conv), x, edges, weight)
    k = count(conv)
    if isinstance(conv, TAGConv):  # Horner's scheme: x W(K), then A· + x W(K-1), …
        maps = [lin(x) for lin in conv.lins]
        return Recurrence(maps[-1], propagate, (1.0,) * k, (0.0,) * k, tuple(maps[-2::-1]))
    if isinstance(conv, SGConv):
        first = conv.lin(x) if getattr(conv, "propagates_bias", False) else x @ conv.lin.weight.t()
        return Recurrence(first, propagate, (1.0,) * k, (0.0,) * k, (None,) * k)
    assert isinstance(conv, APPNP)
    rest = conv.alpha * x
    return Recurrence(x, propagate, (1.0 - conv.alpha,) * k, (0.0,) * k, (rest,) * k, first_is_new=False)


def normalised(conv: Any, x: Tensor, edges: Tensor, weight: Tensor | None) -> Propagate:
    """The layer's own propagation with its own normalisation."""
    if getattr(conv, "normalize", True):
        loops = getattr(conv, "add_self_loops", False)
        normed = gcn_norm(edges, weight, x.size(-2), False, loops, conv.flow, dtype=x.dtype)
        edges, weight = normed if isinstance(normed, tuple) else (normed, None)
    elif is_sparse_adjacency(edges):
        weight = None
    return lambda h: cast(Tensor, conv.propagate(edges, x=h, edge_weight=weight))


def _clenshaw(conv: ChebConv, x: Tensor, edges: Tensor, weight: Tensor | None, extra: dict[str, Any]) -> Recurrence:
    """Chebyshev sums by Clenshaw's scheme: T(k) = 2 L T(k-1) - T(k-2) + x W(K-k), and L once at the end."""
    index, norm = conv.__norm__(
        edges,
        x.size(-2),
        weight,
        conv.normalization,
        extra.get("lambda_max"),
        dtype=x.dtype,
        batch=extra.get("batch"),
    )
    maps = [lin(x) for lin in conv.lins]
    k = len(maps) - 1
    scale = (2.0,) * (k - 1) + (1.0,)
    back = tuple(0.0 if hop == 0 else -1.0 for hop in range(k))

    def propagate(h: Tensor) -> Tensor:
        return cast(Tensor, conv.propagate(index, x=h, norm=norm))

    return Recurrence(maps[-1], propagate, scale, back, tuple(maps[-2::-1]))
