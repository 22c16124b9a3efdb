"""What a fit tells about itself: every epoch, and the run as a whole."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from aggbuffer.config import FitConfig
from aggbuffer.text import html_table, markdown_table, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    history: list[EpochRecord] = field(repr=False)
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

    def to_markdown(self) -> str:
        """How the run ended, then its first, its kept and its last epoch as a table."""
        return f"{self._in_words()}\n\n{markdown_table(*self._table())}" if self.history else self._in_words()

    def _repr_html_(self) -> str:
        from aggbuffer.plots import inline

        words = f"<p>{self._in_words()}</p>"
        if not self.history:
            return words
        return words + html_table(*self._table()) + inline(self.plot, "Both terms of the loss and the monitor")

    def __str__(self) -> str:
        return self.to_markdown()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw both terms of the loss and the monitor on ``ax`` or on axes of its own; needs matplotlib."""
        from aggbuffer.plots import plot_fit

        return plot_fit(self, ax)

    def _in_words(self) -> str:
        kept = f"the state of epoch {self.best_epoch}" if self.best_epoch else "the untouched base"
        return (
            f"{self.epochs} epochs in {self.seconds:.1f} s, ended by {self.stopped}; {kept} was best on "
            f"{self.monitor} and is in the model."
        )

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """Its first, its kept and its last epoch."""
        shown = sorted({1, max(self.best_epoch, 1), self.epochs})
        headers = ["epoch", "bias", "robustness", "validation loss", "accuracy", "score"]
        rows = []
        for record in (self.history[epoch - 1] for epoch in shown):
            name = f"{record.epoch} (kept)" if record.epoch == self.best_epoch else str(record.epoch)
            loss = "–" if math.isnan(record.val_loss) else f"{record.val_loss:.4f}"
            terms = [f"{value:.4f}" for value in (record.bias, record.robust)]
            rows.append([name, *terms, loss, percent(record.val_accuracy, 2), f"{record.score:.4f}"])
        return headers, rows


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same with None for what JSON cannot say: NaN and infinities."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
