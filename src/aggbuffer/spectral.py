"""Spectral norms: of dense matrices, of linear maps known by their products, of adjacencies and their differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]

_DENSE_LIMIT = 512  # matrices with a side up to this get the exact norm, others an iterative one


def spectral_norm(matrix: Tensor) -> float:
    """||M||_2 of a dense ``[n, m]``: exact where one side is small, else iterated."""
    matrix = matrix.detach().to(torch.promote_types(matrix.dtype, torch.float32))
    matrix = matrix if matrix.size(0) >= matrix.size(1) else matrix.t()
    size = float(matrix.abs().max()) if matrix.numel() else 0.0
    if size == 0 or not math.isfinite(size):
        return size
    matrix = matrix / size  # squares of float32 overflow early
    if matrix.size(1) > _DENSE_LIMIT:
        return size * operator_norm(lambda v: matrix @ v, lambda u: matrix.t() @ u, matrix[0])
    return size * math.sqrt(max(float(torch.linalg.eigvalsh((matrix.t() @ matrix).double())[-1]), 0.0))


def operator_norm(
    times: Product, transposed_times: Product, like: Tensor, *, tolerance: float = 1e-6, most: int = 200
) -> float:
    """||M||_2 of a matrix that is only known by its products with vectors.

    Lanczos on M'M: the power iteration that also keeps what its earlier vectors found, and so needs far fewer steps.
    It stops when a step moves the estimate by less than ``tolerance``; the estimate never exceeds the norm.

    Args:
        times: v -> M v.
        transposed_times: u -> M' u.
        like: A tensor of the shape, dtype and device of v.
        tolerance: Relative.
        most: The most steps.
    """
    start = torch.randn(like.shape, generator=torch.Generator().manual_seed(0)).to(like)
    v, before, beta = start / start.norm(), torch.zeros_like(start), 0.0
    diagonal: list[float] = []
    beside: list[float] = []
    estimate = 0.0
    for _ in range(most):
        w = transposed_times(times(v))
        diagonal.append(float((v * w).sum()))
        if not math.isfinite(diagonal[-1]):
            return math.nan
        w = w - diagonal[-1] * v - beta * before
        found = _largest_eigenvalue(diagonal, beside)
        before, beta = v, float(w.norm())
        if len(diagonal) > 4 and found - estimate <= tolerance * found:
            return math.sqrt(max(found, 0.0))
        if beta <= 1e-6 * found or found <= 0:  # the whole range of M has been seen
            break
        estimate = found
        beside.append(beta)
        v = w / beta
    return math.sqrt(max(found, 0.0))


def _largest_eigenvalue(diagonal: list[float], beside: list[float]) -> float:
    tri = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    if beside:
        tri = tri + torch.diag(off := torch.tensor(beside, dtype=torch.float64), 1) + torch.diag(off, -1)
    return float(torch.linalg.eigvalsh(tri)[-1])


@dataclass(frozen=True, eq=False)
class Adjacency:
    """A matrix A_hat ``[N, N]`` (rows are targets), or its K-th power, as the products that its norm needs."""

    source: Tensor
    target: Tensor
    value: Tensor
    num_nodes: int
    hops: int = 1

    def times(self, v: Tensor) -> Tensor:
        """A_hat v."""
        return self._walk(v, self.source, self.target)

    def transposed_times(self, v: Tensor) -> Tensor:
        """A_hat' v."""
        return self._walk(v, self.target, self.source)

    def _walk(self, v: Tensor, source: Tensor, target: Tensor) -> Tensor:
        for _ in range(self.hops):
            v = torch.zeros_like(v).index_add_(0, target, self.value * v[source])
        return v

    def minus(self, other: Adjacency) -> tuple[Product, Product]:
        """The products of the difference and of its transpose."""
        return (
            lambda v: self.times(v) - other.times(v),
            lambda v: self.transposed_times(v) - other.transposed_times(v),
        )


class Adjacencies:
    """The adjacencies of one pass and their norms. Layers that share their edges share the work."""

    def __init__(self, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        self._made: dict[object, tuple[object, Adjacency]] = {}
        self._norms: dict[tuple[Adjacency, Adjacency | None], float] = {}

    def make(
        self, conv: Any, edges: Tensor, weight: Tensor | None, build: Callable[[], tuple[Tensor, Tensor, Tensor]]
    ) -> Adjacency:
        """The adjacency that a layer uses; built once for layers of one kind, with the same settings and edges."""
        settings = [getattr(conv, name, None) for name in ("improved", "add_self_loops", "normalize", "flow", "K")]
        key = (type(conv), *settings, id(edges), id(weight))
        if key not in self._made:
            source, target, value = build()
            if conv.flow == "target_to_source":
                source, target = target, source
            value = value.to(torch.promote_types(value.dtype, torch.float32))
            made = Adjacency(source, target, value, self.num_nodes, getattr(conv, "K", 1))
            self._made[key] = ((edges, weight), made)  # the tensors too: an id is only good while they live
        return self._made[key][1]

    def norm(self, one: Adjacency, other: Adjacency | None = None) -> float:
        """||A1_hat||_2, or ||A1_hat - A2_hat||_2."""
        if (one, other) not in self._norms:
            products = (one.times, one.transposed_times) if other is None else one.minus(other)
            self._norms[one, other] = operator_norm(*products, one.value.new_empty(self.num_nodes))
        return self._norms[one, other]
