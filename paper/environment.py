"""Where a number was measured."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch
import torch_geometric

import aggbuffer


def describe() -> dict[str, str | int]:
    """Versions and hardware, for every result that is written."""
    return {
        "aggbuffer": aggbuffer.__version__,
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "python": platform.python_version(),
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
