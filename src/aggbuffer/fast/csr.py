"""Products with a constant sparse matrix, whose transpose is kept for the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

_ROWS_AT_ONCE = 512  # of G in Xᵀ G: a megabyte, at 512 columns


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


@dataclass(frozen=True)
class RowBlocks:
    """The transpose of a tall sparse matrix X, as a sum over blocks of the rows of X.

    The product with G reads a row of G for every entry of X. Block by block, the rows that are read stay in the cache,
    which is two to three times as fast.

    Attributes:
        blocks: Where each block of rows starts and ends, and its transpose.
    """

    blocks: tuple[tuple[int, int, Csr], ...]

    def __matmul__(self, dense: Tensor) -> Tensor:
        """``Xᵀ dense``, ``[columns of X, width]``, of ``dense`` ``[rows of X, width]``."""
        total: Tensor | None = None
        for start, end, block in self.blocks:
            part = block @ dense[start:end]
            total = part if total is None else total.add_(part)
        assert total is not None
        return total


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Csr, its_transpose: Callable[[], Csr | RowBlocks], dense: Tensor) -> Tensor:
        ctx.its_transpose = its_transpose
        return matrix @ dense

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, Tensor]:
        return None, None, ctx.its_transpose() @ gradients[0]


def product(matrix: Csr, its_transpose: Callable[[], Csr | RowBlocks], dense: Tensor) -> Tensor:
    """``matrix @ dense`` with a gradient for ``dense``; ``its_transpose`` is asked for only in a backward pass."""
    return cast(Tensor, _Product.apply(matrix, its_transpose, dense))  # type: ignore[no-untyped-call]


def by_rows(row: Tensor, column: Tensor, value: Tensor | None, rows: int) -> Csr:
    """The matrix of entries that are sorted by row."""
    return Csr(row_pointer(torch.bincount(row, minlength=rows)), column.int(), value)


def to_sparse(x: Tensor) -> Csr:
    """A dense matrix ``[rows, columns]`` by rows."""
    row, column = x.nonzero(as_tuple=True)
    return by_rows(row, column, x[row, column], x.size(0))


def transposed(matrix: Csr, columns: int) -> RowBlocks:
    """The transpose of a matrix with values, in blocks that are worth the sum over them.

    They are if a block has many entries for each of its ``columns`` rows.
    """
    rows, entries = matrix.pointer.numel() - 1, max(1, matrix.column.numel())
    row = torch.repeat_interleave(torch.arange(rows), matrix.pointer.diff())
    size = max(_ROWS_AT_ONCE, 16 * columns * rows // entries)
    assert matrix.value is not None
    blocks = []
    for start in range(0, rows, size):
        end = min(start + size, rows)
        part = slice(int(matrix.pointer[start]), int(matrix.pointer[end]))
        order = matrix.column[part].argsort(stable=True)
        at = (row[part] - start)[order]
        blocks.append((start, end, by_rows(matrix.column[part][order], at, matrix.value[part][order], columns)))
    return RowBlocks(tuple(blocks))


def row_pointer(counts: Tensor) -> Tensor:
    """Where each row starts, ``[rows + 1]`` int32, from the number of entries of each row."""
    pointer = torch.zeros(counts.numel() + 1, dtype=torch.int32)
    torch.cumsum(counts, 0, dtype=torch.int32, out=pointer[1:])
    return pointer
