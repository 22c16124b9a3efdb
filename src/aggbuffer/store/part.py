"""One bucket of edges with neighbouring targets, sorted in memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]

KEY, WEIGHT = "key", "weight"
_AT_ONCE = 2**18


def record_type(has_weight: bool) -> np.dtype[Any]:
    """How an edge is written to the file of its bucket: ``(target - the bucket's first node) * N + source``."""
    return np.dtype([(KEY, np.int64), *([(WEIGHT, np.float32)] if has_weight else [])])


@dataclass(frozen=True)
class Part:
    """A sorted bucket.

    Attributes:
        target: ``[B]``, counted from the bucket's first node.
        source: ``[B]``.
        weight: ``[B]`` or None.
        counts: How many edges lead to each of the bucket's nodes.
        duplicates: How many edges were left out.
    """

    target: Numbers
    source: Numbers
    weight: Numbers | None
    counts: Numbers
    duplicates: int

    @classmethod
    def read(cls, path: Path, width: int, num_nodes: int, has_weight: bool) -> Part:
        """Sort the edges of a file and leave out those that it holds again.

        Args:
            path: Records of :func:`record_type`.
            width: How many nodes the bucket has.
            num_nodes: N.
            has_weight: Whether the records have weights.
        """
        records = np.fromfile(path, record_type(has_weight))
        weight = None
        if has_weight:
            order = np.argsort(records[KEY], kind="stable")  # of an edge listed twice, the weight read first stays
            keys, weight = records[KEY][order], records[WEIGHT][order]
            del order
        else:
            keys = records.view(np.int64)
            keys.sort()
        del records
        first = np.ones(len(keys), bool)
        np.not_equal(keys[1:], keys[:-1], out=first[1:])
        duplicates = len(keys) - int(first.sum())
        if duplicates:
            keys, weight = keys[first], None if weight is None else weight[first]
        target = keys // num_nodes
        keys %= num_nodes
        return cls(target, keys, weight, np.bincount(target, minlength=width), duplicates)

    def loops(self, start: int) -> Numbers:
        """Which edges are self-loops, ``[B]`` bool."""
        loops: Numbers = self.source == self.target + start
        return loops

    def degree(self, start: int) -> Numbers:
        """In-degrees without self-loops."""
        loops = np.bincount(self.target[self.loops(start)], minlength=len(self.counts))
        degree: Numbers = self.counts - loops
        return degree

    def balance(self, start: int) -> int:
        """A sum over the edges that is 0 modulo 2^64, over all buckets, if every edge has its reverse.

        Every pair of nodes has a random 64-bit number of its own, which the edge from the lower to the higher adds and
        its reverse subtracts. With an edge that has no reverse, a sum of 0 is a chance of one in 10^19.
        """
        total = 0
        for at in range(0, len(self.source), _AT_ONCE):
            source = self.source[at : at + _AT_ONCE]
            target = self.target[at : at + _AT_ONCE] + start
            low, high = (end.astype(np.uint64) for end in (np.minimum(source, target), np.maximum(source, target)))
            number = _mixed(_mixed(low) ^ high)
            total += int(number[source < target].sum(dtype=np.uint64))
            total -= int(number[source > target].sum(dtype=np.uint64))
        return total % 2**64


def _mixed(number: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of SplitMix64: every bit of the result depends on every bit of the number."""
    number = number + np.uint64(0x9E3779B97F4A7C15)
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))
