"""The constant node features, and what is cheapest to multiply them with."""

from __future__ import annotations

from functools import cached_property

from torch import Tensor

from aggbuffer.fast.csr import RowBlocks, product, to_sparse, transposed
from aggbuffer.fast.rates import sparse_below
from aggbuffer.fast.tall import times


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
            return times(self.x, weight)
        return product(self._sparse, lambda: self._transposed, weight)
