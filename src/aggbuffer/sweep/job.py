"""What every trial of a search has in common, and one trial of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from aggbuffer.attach import attach, detach
from aggbuffer.callbacks import Callback
from aggbuffer.config import BufferConfig, FitConfig
from aggbuffer.errors import ConfigError, GraphError
from aggbuffer.fit import fit
from aggbuffer.forward import Forward
from aggbuffer.graph import Graph
from aggbuffer.model import BufferedGNN
from aggbuffer.result import EpochRecord, FitResult
from aggbuffer.targets import select


@dataclass(frozen=True)
class Job:
    """A base model, its graph, and all settings that are not searched.

    Attributes:
        gnn: The base.
        data: Its graph.
        train_mask: As for :func:`aggbuffer.fit`.
        val_mask: Likewise; trials are compared by its nodes alone.
        config: Of every fit; a trial changes what is searched.
        buffer_config: Of every buffer.
        forward: As for :func:`aggbuffer.attach`.
    """

    gnn: nn.Module
    data: Any
    train_mask: str | Tensor
    val_mask: str | Tensor
    config: FitConfig
    buffer_config: BufferConfig | None
    forward: Forward | None

    def check(self) -> FitResult:
        """Refuse now what no trial could use; the result is the base's own, without an epoch.

        Raises:
            AggBufferError: For input that cannot be used; the base is as it was.
        """
        if self.config.monitor == "rc_loss":
            raise ConfigError(
                "A search compares trials by validation loss or accuracy; monitor='rc_loss' depends on what is "
                "searched, so it cannot compare."
            )
        graph = Graph.of(self.data)
        if graph.data.get("y") is None or select(graph.data, self.val_mask, graph.num_nodes) is None:
            raise GraphError("A search compares trials on validation nodes; give the graph labels (y) and a val_mask.")
        with self.attached() as model:
            return self.fit(model, {"max_epochs": 0}, [])

    @contextmanager
    def attached(self) -> Iterator[BufferedGNN]:
        """The base with a fresh buffer; it is as it was afterwards, whatever happens."""
        model = attach(self.gnn, self.data, self.buffer_config, forward=self.forward)
        try:
            yield model
        finally:
            detach(model)

    def fit(self, model: BufferedGNN, settings: Mapping[str, Any], callbacks: list[Callback]) -> FitResult:
        """Fit that buffer.

        Args:
            model: From :meth:`attached`.
            settings: What differs from ``config``.
            callbacks: As for :func:`aggbuffer.fit`.
        """
        return fit(
            model,
            self.data,
            self.config.override(**settings),
            train_mask=self.train_mask,
            val_mask=self.val_mask,
            progress=False,
            callbacks=callbacks,
        )


def scores(result: FitResult) -> dict[str, float]:
    """Validation loss and accuracy of the epoch that is kept, as far as there are any."""
    if result.best_epoch == 0:  # the base itself; of it only what the run is stopped on is known
        name, value = (
            ("val_loss", result.best_score) if result.monitor == "val_loss" else ("val_accuracy", -result.best_score)
        )
        return {name: value}
    best: EpochRecord = result.history[result.best_epoch - 1]
    # A NaN, as of the accuracy of a regression, is not equal to itself.
    return {
        name: value
        for name, value in (("val_loss", best.val_loss), ("val_accuracy", best.val_accuracy))
        if value == value
    }
