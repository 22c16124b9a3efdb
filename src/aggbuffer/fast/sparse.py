"""Products with a constant sparse matrix, whose transpose is kept for the backward pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

_SAMPLE_ROWS = 2048
_DENSE_FROM = 0.5  # above this share of entries a dense product always wins; not worth measuring


@dataclass(frozen=True)
class Csr:
    """A sparse matrix by rows.

    Attributes:
        pointer: ``[rows + 1]`` int32.
        column: ``[nnz]`` int32.
        value: ``[nnz]``, or None where every entry is 1.
    """

    pointer: Tensor
    column: Tensor
    value: Tensor | None

    def __matmul__(self, dense: Tensor) -> Tensor:
        """``[rows, width]`` of ``dense`` ``[columns, width]``.

        An embedding bag is this very product, and torch's (FBGEMM's) is two to four times as fast as its CSR product.
        """
        if self.column.numel() == 0:
            return dense.new_zeros(self.pointer.numel() - 1, dense.size(1))
        return F.embedding_bag(
            self.column,
            dense.contiguous(),
            self.pointer,
            mode="sum",
            per_sample_weights=self.value,
            include_last_offset=True,
        )


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Csr, transposed: Callable[[], Csr], dense: Tensor) -> Tensor:
        ctx.transposed = transposed
        return matrix @ dense

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, Tensor]:
        return None, None, ctx.transposed() @ gradients[0]


def product(matrix: Csr, transposed: Callable[[], Csr], dense: Tensor) -> Tensor:
    """``matrix @ dense`` with a gradient for ``dense``; ``transposed`` is asked for only in a backward pass."""
    return cast(Tensor, _Product.apply(matrix, transposed, dense))  # type: ignore[no-untyped-call]


class Features:
    """The constant node features X, multiplied as a sparse matrix where that is faster.

    Args:
        x: ``[N, F]``.
        width: Columns of the products to come, for the measurement that decides.
    """

    def __init__(self, x: Tensor, width: int) -> None:
        self.x = x
        self._sparse: tuple[Csr, Csr] | None = None
        if x.layout == torch.strided and x.count_nonzero().item() < _DENSE_FROM * x.numel() and _sparse_wins(x, width):
            self._sparse = (_to_csr(x), _to_csr(x.t()))

    @property
    def is_sparse(self) -> bool:
        return self._sparse is not None

    def __matmul__(self, weight: Tensor) -> Tensor:
        """``X @ weight``, ``[N, width]``."""
        if self._sparse is None:
            return self.x @ weight
        matrix, transposed = self._sparse
        return product(matrix, lambda: transposed, weight)


def _to_csr(x: Tensor) -> Csr:
    sparse = x.to_sparse_csr()
    return Csr(sparse.crow_indices().int(), sparse.col_indices().int(), sparse.values())


def _sparse_wins(x: Tensor, width: int) -> bool:
    """Measured on a slice of the rows, forward and backward: it takes milliseconds and decides for the whole run."""
    part = x[:_SAMPLE_ROWS]
    weight = torch.ones(x.size(1), width, dtype=x.dtype)
    gradient = torch.ones(part.size(0), width, dtype=x.dtype)
    rows, columns = _to_csr(part), _to_csr(part.t())

    def sparse() -> None:
        _ = rows @ weight, columns @ gradient

    def dense() -> None:
        _ = part @ weight, part.t() @ gradient

    return _seconds(sparse) < _seconds(dense)


def _seconds(work: Callable[[], None]) -> float:
    best = float("inf")
    for _ in range(3):  # the first one warms up
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best
