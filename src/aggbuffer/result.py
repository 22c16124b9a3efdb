"""What a fit tells about itself: every epoch, and the run as a whole."""

from __future__ import annotations

import math
from collections.abc import Callable
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


Callback = Callable[[EpochRecord], object]


@dataclass(frozen=True)
class FitResult:
    """What a run did.

    Attributes:
        config: Its settings.
        monitor: What it was really stopped on.
        history: Every epoch.
        best_epoch: The epoch whose state is in the model; 0 if the untouched base was best.
        best_score: The monitor there, lower is better.
        stopped: ``"patience"``, ``"max_epochs"`` or ``"callback"``.
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
        history = [
            {key: None if math.isnan(value) else value for key, value in asdict(record).items()}
            for record in self.history
        ]
        return {**asdict(self), "history": history}
