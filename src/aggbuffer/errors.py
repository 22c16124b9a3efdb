"""Every error the library raises on purpose.

Each message is one sentence or two: what was found, what was expected, what to do.
"""

from __future__ import annotations


class AggBufferError(Exception):
    """Base of every error this library raises on purpose."""


class GraphError(AggBufferError, ValueError):
    """The graph, its features, labels or masks cannot be used."""


class ModelError(AggBufferError, ValueError):
    """The model cannot carry a buffer, or cannot run on this graph."""


class ModelTypeError(ModelError, TypeError):
    """An argument is not a model, or a model of the wrong kind."""


class ConfigError(AggBufferError, ValueError):
    """A setting is outside its range, unknown, or contradicts another."""


class BufferFileError(AggBufferError, ValueError):
    """A buffer file or checkpoint is missing, foreign, damaged, or made for another base model."""


class RanksError(AggBufferError):
    """A process of a run on several has gone, has failed, or does not answer.

    Attributes:
        speaker: The lowest rank that is left, which is to tell the user.
    """

    def __init__(self, told: str, speaker: int = 0) -> None:
        super().__init__(told)
        self.speaker = speaker


class DataUnavailableError(AggBufferError):
    """A benchmark graph could be found neither locally nor where it is published."""


class LogError(AggBufferError):
    """A log cannot be opened."""


class MissingPackageError(AggBufferError, ImportError):
    """An optional package is not installed."""


class SearchError(AggBufferError):
    """A search's storage cannot be used or holds another search, or no trial came through."""
