"""Products with a constant sparse matrix, whose transpose is kept for the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

# Below these shares of non-zero entries the sparse product wins, by the rates of both products: X W reads rows of W,
# which stay in the cache, Xᵀ G reads rows of G, which do not. Constants and not measurements at run time: which product
# is taken decides the last bits of a fit, and the same seed must give the same bits in a process that resumes it.
SPARSE_BELOW = 0.2
SPARSE_GRADIENT_BELOW = 0.05
_NARROW = 64


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
    def forward(ctx: Any, matrix: Csr, transposed: Callable[[], Csr | Tensor], dense: Tensor) -> Tensor:
        ctx.transposed = transposed
        return matrix @ dense

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, Tensor]:
        return None, None, ctx.transposed() @ gradients[0]


def product(matrix: Csr, transposed: Callable[[], Csr | Tensor], dense: Tensor) -> Tensor:
    """``matrix @ dense`` with a gradient for ``dense``; ``transposed`` is asked for only in a backward pass."""
    return cast(Tensor, _Product.apply(matrix, transposed, dense))  # type: ignore[no-untyped-call]


def by_columns(weight: Tensor) -> Tensor:
    """The same matrix, laid out by columns where it has few.

    A product of a tall matrix with a narrow one is twice as fast so, and autograd then computes the gradient of the
    narrow one in the order that is seven times as fast (2,708 x 512 times 512 x 7, one thread).
    """
    return weight.t().contiguous().t() if weight.size(1) <= _NARROW else weight


class Features:
    """The constant node features X, multiplied as a sparse matrix where that is faster.

    Args:
        x: ``[N, F]``.
    """

    def __init__(self, x: Tensor) -> None:
        self.x = x
        self._sparse: Csr | None = None
        self._transposed: Csr | Tensor = x.t()
        density = int(x.count_nonzero()) / max(1, x.numel())
        if density < SPARSE_BELOW:
            self._sparse, transposed = _to_csr(x)
            if density < SPARSE_GRADIENT_BELOW:
                self._transposed = transposed

    @property
    def is_sparse(self) -> bool:
        return self._sparse is not None

    def __matmul__(self, weight: Tensor) -> Tensor:
        """``X @ weight``, ``[N, width]``."""
        if self._sparse is None:
            return self.x @ weight
        return product(self._sparse, lambda: self._transposed, weight)


def _to_csr(x: Tensor) -> tuple[Csr, Csr]:
    """A dense matrix by rows, and its transpose by rows."""
    row, column = x.nonzero(as_tuple=True)
    value = x[row, column]
    by_column = column.argsort(stable=True)
    return (
        Csr(row_pointer(torch.bincount(row, minlength=x.size(0))), column.int(), value),
        Csr(row_pointer(torch.bincount(column, minlength=x.size(1))), row[by_column].int(), value[by_column]),
    )


def row_pointer(counts: Tensor) -> Tensor:
    """Where each row starts, ``[rows + 1]`` int32, from the number of entries of each row."""
    pointer = torch.zeros(counts.numel() + 1, dtype=torch.int32)
    torch.cumsum(counts, 0, dtype=torch.int32, out=pointer[1:])
    return pointer
