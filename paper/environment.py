"""Where a number was measured, and how much memory it took."""

from __future__ import annotations

import os
import platform
import resource
from pathlib import Path

import torch
import torch_geometric

import aggbuffer
from aggbuffer.fast.rates import processor


def describe() -> dict[str, str | int]:
    """Versions and hardware, for every result that is written."""
    return {
        "aggbuffer": aggbuffer.__version__,
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "python": platform.python_version(),
        "processor": processor(),
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
    }


def forget_peak_memory() -> None:
    """Start counting anew, where the kernel lets us: a process measures many units, and each wants its own peak."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_memory() -> float:
    """The most memory this process held since :func:`forget_peak_memory`, in MiB."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
