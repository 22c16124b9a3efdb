"""What a fit tells about itself: every epoch, and the run as a whole."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from aggbuffer.config import FitConfig


@dataclass(frozen=True)
class EpochRecord:
    """One epoch.

    Attributes:
        epoch: Counted from 1; epoch 0 is the untouched base.
        bias: The bias term of the step.
        robust: The robustness term of the step.
        loss: ``bias + strength * robust``.
        val_loss: The task's loss on validation nodes after the step; NaN without labels.
        val_accuracy: Accuracy there; NaN for regression or without labels.
        score: What the run is stopped on, lower is better.
    """

    epoch: int
    bias: float
    robust: float
    loss: float
    val_loss: float
    val_accuracy: float
    score: float

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values; what does not apply is None."""
        return _finite(asdict(self))


@dataclass(frozen=True)
class FitResult:
    """What a run did.

    Attributes:
        config: Its settings.
        monitor: What it was really stopped on.
        history: Every epoch.
        best_epoch: The epoch whose state is in the model; 0 if the untouched base was best.
        best_score: The monitor there, lower is better.
        stopped: ``"patience"``, ``"max_epochs"`` or ``"callback"``; callbacks may also be told of a run that ended as
            ``"interrupted"`` or ``"error"``.
        seconds: Wall time of all its parts, over interruptions.
    """

    config: FitConfig
    monitor: str
    history: list[EpochRecord]
    best_epoch: int
    best_score: float
    stopped: str
    seconds: float

    @property
    def epochs(self) -> int:
        return len(self.history)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values; what does not apply is None."""
        return {**_finite(asdict(self)), "history": [record.to_dict() for record in self.history]}


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same with None for what JSON cannot say: NaN and infinities."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
