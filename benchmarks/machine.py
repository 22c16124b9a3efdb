"""What this machine can do at best: dense products, copies, and the gathers that a sparse product is made of."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

MIB = 2**20
FLOAT = 4  # bytes
COPIES = (1, 4, 16, 64, 256)  # MiB
MATRICES = (1, 16, 256)  # MiB: in a core's own cache, in the cache they share or nearly, far beyond it
WIDTHS = (16, 64, 128, 256, 512)
DEGREE = 20  # rows that each row of a sparse product gathers
# rows x inner @ inner x columns. The first tells the peak; the others how far narrow products stay below it.
SHAPES = (
    (2048, 2048, 2048),
    (20_000, 512, 7),
    (20_000, 7, 512),
    (512, 20_000, 7),
    (100_000, 128, 512),
)
_AT_LEAST = 0.15  # seconds of every measurement
_GATHERED = 64 * MIB  # bytes of one product


@dataclass(frozen=True)
class Machine:
    """Rates of one machine with a number of threads.

    Attributes:
        products: GFLOP/s by shape, as ``"20000 x 512 @ 512 x 7"``.
        copies: GB/s read and written, by the MiB of the array.
        gathers: GB/s of gathered rows, by their width, by the MiB of the matrix that they are in.
    """

    products: dict[str, float]
    copies: dict[int, float]
    gathers: dict[int, dict[int, float]]

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Machine:
        """What :func:`measure` found, read from JSON, whose keys are text."""
        copies = {int(size): rate for size, rate in result["copies"].items()}
        gathers = {
            int(width): {int(size): rate for size, rate in rates.items()} for width, rates in result["gathers"].items()
        }
        return cls(dict(result["products"]), copies, gathers)

    def move(self, moved: float, array: float) -> float:
        """Seconds to read and write ``moved`` bytes in passes over arrays of ``array`` bytes."""
        return moved / (1e9 * _between(self.copies, array / MIB))

    def product(self, rows: float, inner: float, columns: float) -> float:
        """Seconds of a dense product at the best rate of any shape, or of moving its three matrices if that is more."""
        sizes = [rows * inner, inner * columns, rows * columns]
        by_arithmetic = 2 * rows * inner * columns / (1e9 * max(self.products.values()))
        return max(by_arithmetic, self.move(FLOAT * sum(sizes), FLOAT * max(sizes)))

    def gather(self, entries: float, width: float, rows: float) -> float:
        """Seconds of a sparse product: a row of ``width`` out of ``rows`` such rows for every entry."""
        matrix = FLOAT * rows * width / MIB
        rate = _between({w: _between(rates, matrix) for w, rates in self.gathers.items()}, width)
        return FLOAT * entries * width / (1e9 * rate)


def measure() -> Machine:
    """Half a minute of measurements with torch's current number of threads."""
    return Machine(
        {f"{n} x {k} @ {k} x {m}": _product(n, k, m) for n, k, m in SHAPES},
        {size: _copy(size) for size in COPIES},
        {width: {size: _gather(width, size) for size in MATRICES} for width in WIDTHS},
    )


def _product(rows: int, inner: int, columns: int) -> float:
    left, right = torch.randn(rows, inner), torch.randn(inner, columns)
    out = torch.empty(rows, columns)
    return 2e-9 * rows * inner * columns / _seconds(lambda: torch.mm(left, right, out=out))


def _copy(size: int) -> float:
    source = torch.zeros(size * MIB // FLOAT)
    target = torch.zeros_like(source)
    return 2e-9 * size * MIB / _seconds(lambda: target.copy_(source))


def _gather(width: int, size: int) -> float:
    """Of an embedding bag, which is how ``aggbuffer.fast.sparse`` multiplies sparse matrices."""
    draw = torch.Generator().manual_seed(0)
    rows = size * MIB // (FLOAT * width)
    bags = max(1, _GATHERED // (FLOAT * width * DEGREE))
    entries = bags * DEGREE
    matrix = torch.randn(rows, width)
    column = torch.randint(rows, (entries,), generator=draw, dtype=torch.int32)
    pointer = torch.arange(0, entries + 1, DEGREE, dtype=torch.int32)
    value = torch.rand(entries, generator=draw)
    seconds = _seconds(
        lambda: F.embedding_bag(column, matrix, pointer, mode="sum", per_sample_weights=value, include_last_offset=True)
    )
    return 1e-9 * FLOAT * entries * width / seconds


def _seconds(act: Callable[[], object]) -> float:
    """The shortest of many repetitions, as a limit is asked for."""
    act()
    best, until = math.inf, time.perf_counter() + _AT_LEAST
    while time.perf_counter() < until or best == math.inf:
        started = time.perf_counter()
        act()
        best = min(best, time.perf_counter() - started)
    return best


def _between(rates: Mapping[int, float], at: float) -> float:
    """The rate at a size between those measured, evenly over the logarithm of the size."""
    sizes = sorted(rates)
    return float(np.interp(math.log(max(at, 1e-9)), np.log(sizes), [rates[size] for size in sizes]))
