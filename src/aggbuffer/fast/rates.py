"""How sparse features must be for the sparse product to be the faster one: measured once on a machine, and kept.

Which product is taken decides the last bits of a fit, and the same seed must give the same bits in a process that
resumes it. So the first measurement stays, in a file; where none can be kept, a constant takes its place.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from aggbuffer.fast.csr import to_sparse, transposed
from aggbuffer.files import write_bytes

USUAL = 0.4
_MOST = 0.5  # above, the sparse matrix and its transpose take twice the memory
_SHAPE, _WIDTH, _DENSITY, _ROUNDS = (2048, 768), 512, 0.3, 8


@cache
def sparse_below() -> float:
    """The share of non-zero entries below which the sparse product wins on this machine."""
    key = f"{processor()}, torch {torch.__version__}"
    try:
        path = _folder() / "sparse-below.json"
        found = _read(path)
        if key not in found:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(json.dumps({key: measured(), **found}, indent=1).encode(), path)
            found = _read(path)  # of several processes that measured, the last to write decides for later ones
        return float(found[key])
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):  # the last: a user without a home
        return USUAL


def measured() -> float:
    """That share, from the time of both products and their gradients where a third is not zero; takes half a second."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(_SHAPE, generator=draw) * (torch.rand(_SHAPE, generator=draw) < _DENSITY)
    weight, gradient = (torch.randn(rows, _WIDTH, generator=draw) for rows in reversed(_SHAPE))
    sparse = to_sparse(x)
    turned = transposed(sparse, _SHAPE[1])
    times: list[tuple[float, float]] = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # which other work on the machine disturbs the least
    try:
        for _ in range(_ROUNDS):
            dense = _seconds(lambda: x @ weight) + _seconds(lambda: x.t() @ gradient)
            times.append((dense, _seconds(lambda: sparse @ weight) + _seconds(lambda: turned @ gradient)))
    finally:
        torch.set_num_threads(threads)
    dense, ours = (min(both) for both in zip(*times, strict=True))
    return round(min(_MOST, float(_DENSITY * dense / ours)), 2)


def processor() -> str:
    """What the machine calls its processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _seconds(multiply: Callable[[], Tensor]) -> float:
    started = time.perf_counter()
    multiply()
    return time.perf_counter() - started


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aggbuffer"


def _read(path: Path) -> dict[str, float]:
    return dict(json.loads(path.read_text())) if path.exists() else {}
