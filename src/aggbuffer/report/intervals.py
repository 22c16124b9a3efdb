"""How sure a single score is: intervals over nodes, without resampling."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from aggbuffer.targets import Task

Z = 1.959964  # 95 %


def wilson(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of ``count`` nodes: within 0 and 1, and with a width also at these ends."""
    weight = Z * Z / count
    middle = (share + weight / 2) / (1 + weight)
    reach = math.sqrt(share * (1 - share) * weight + weight * weight / 4) / (1 + weight)
    return max(0.0, middle - reach), min(1.0, middle + reach)


def scored(quality: Tensor, task: Task) -> dict[str, Any]:
    """A score with its interval as JSON-ready values: an accuracy, or a root mean squared error for regression.

    Args:
        quality: Of each node, as :func:`aggbuffer.scores.quality` tells it, ``[M]``; averaged over draws where there
            are several.
        task: What it is the quality of.
    """
    count, mean = quality.numel(), float(quality.mean())
    if task != "regression":
        low, high = wilson(min(max(mean, 0.0), 1.0), count)
        return {"value": mean, "low": low, "high": high}
    reach = Z * float(quality.std(correction=0)) / math.sqrt(count)
    low, high = max(0.0, -mean - reach), -mean + reach
    return {"value": math.sqrt(-mean), "low": math.sqrt(low), "high": math.sqrt(high)}
