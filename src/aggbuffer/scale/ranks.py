"""What several processes that train one model must do together; alone, nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor


class Ranks(Protocol):
    """The processes of a run, seen from one of them. Every method is called by all of them, in the same order."""

    @property
    def rank(self) -> int:
        """This one's number, from 0."""
        ...

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    def share(self, seeds: Tensor) -> Tensor:
        """This process's part of ``seeds`` ``[n]``; the parts of all are disjoint and make up the whole."""
        ...

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor, in place, by its sum over all processes."""
        ...

    def gather_rows(self, rows: Tensor) -> Tensor:
        """The rows of all processes, ``[n_0 + n_1 + …, …]``, in the order of their ranks, to each of them."""
        ...

    def barrier(self) -> None:
        """Wait until every process is here."""
        ...


class Alone:
    """One process."""

    rank, size = 0, 1

    def share(self, seeds: Tensor) -> Tensor:
        return seeds

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        pass

    def gather_rows(self, rows: Tensor) -> Tensor:
        return rows

    def barrier(self) -> None:
        pass
