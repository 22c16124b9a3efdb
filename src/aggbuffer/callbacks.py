"""What a run tells while it goes: the one small protocol behind progress, logs and callbacks of your own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from aggbuffer.config import BufferConfig, FitConfig
from aggbuffer.result import EpochRecord, FitResult
from aggbuffer.version import library_versions

if TYPE_CHECKING:
    from aggbuffer.training import Training

Callback = Callable[[EpochRecord], object]
"""Called with every epoch; one that returns True ends the run.

An object may have two methods besides, which are called if they are there: ``on_start(info)`` with a :class:`RunInfo`
before the first epoch, and ``on_end(result)`` with a :class:`FitResult` once the best state is back in the model. The
latter comes also after Ctrl-C and after an error, with ``result.stopped`` as ``"interrupted"`` or ``"error"``.

An error in a callback ends the run with the best state in the model, and reaches the caller of ``fit``. The loggers of
:mod:`aggbuffer.logs` do not use that: one that cannot write any more says so in a warning, and the run goes on.
"""


@dataclass(frozen=True)
class RunInfo:
    """What is known of a run before its first epoch.

    Attributes:
        config: Its settings, the seed among them.
        buffer: The settings of the buffers.
        monitor: What it is really stopped on.
        history: Epochs that a checkpoint brought; none for a new run.
        base: Class of the base model.
        parameters: How many the buffers have.
        nodes: Of the graph.
        edges: Of the graph, each direction counted.
        features: Of every node.
    """

    config: FitConfig
    buffer: BufferConfig
    monitor: str
    history: list[EpochRecord]
    base: str
    parameters: int
    nodes: int
    edges: int
    features: int

    @property
    def epochs_done(self) -> int:
        return len(self.history)

    @classmethod
    def of(cls, training: Training, history: Iterable[EpochRecord]) -> Self:
        model = training.model
        return cls(
            config=training.config,
            buffer=model.config,
            monitor=training.monitor.name,
            history=list(history),
            base=type(model.base).__name__,
            parameters=model.num_buffer_parameters,
            **training.size,
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything but the history, and the versions of what it runs on, as JSON-ready values."""
        told = asdict(replace(self, history=[]))
        del told["history"]
        return {**told, "epochs_done": self.epochs_done, "versions": library_versions()}


class Callbacks:
    """All callbacks of a run: every one hears of everything, also if another one fails at the end."""

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self._all = list(callbacks)
        self._started: list[Callback] = []

    def start(self, info: RunInfo) -> None:
        for callback in self._all:
            self._started.append(callback)
            if (on_start := getattr(callback, "on_start", None)) is not None:
                on_start(info)

    def epoch(self, record: EpochRecord) -> bool:
        """Tell of an epoch; True if one of them wants to stop."""
        answers = [callback(record) for callback in self._all]
        return any(answer is True for answer in answers)

    def end(self, result: FitResult) -> None:
        with ExitStack() as stack:
            for callback in reversed(self._started):
                if (on_end := getattr(callback, "on_end", None)) is not None:
                    stack.callback(on_end, result)
