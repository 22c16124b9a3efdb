"""The constant node features, and what is cheapest to multiply them with."""

from __future__ import annotations

from functools import cached_property

from torch import Tensor

from aggbuffer.fast.csr import RowBlocks, product, to_sparse, transposed
from aggbuffer.fast.rates import sparse_below

NARROW = 64


class Features:
    """The constant node features X, multiplied as a sparse matrix where that is faster.

    Args:
        x: ``[N, F]``.
    """

    def __init__(self, x: Tensor) -> None:
        self.x, self.columns = x, x.size(1)
        self._sparse = to_sparse(x) if int(x.count_nonzero()) < sparse_below() * x.numel() else None

    @property
    def is_sparse(self) -> bool:
        return self._sparse is not None

    @cached_property
    def _transposed(self) -> RowBlocks:
        assert self._sparse is not None
        return transposed(self._sparse, self.columns)

    def __matmul__(self, weight: Tensor) -> Tensor:
        """``X @ weight``, ``[N, width]``."""
        if self._sparse is None:
            return self.x @ weight
        return product(self._sparse, lambda: self._transposed, weight)


def by_columns(weight: Tensor) -> Tensor:
    """The same matrix, laid out by columns where it has few.

    A product of a tall matrix with a narrow one is twice as fast so, and autograd then computes the gradient of the
    narrow one in the order that is seven times as fast (2,708 x 512 times 512 x 7, one thread).
    """
    return weight.t().contiguous().t() if weight.size(1) <= NARROW else weight
