"""Edge robustness for trained graph neural networks: attach, fit, evaluate, save, detach."""

from aggbuffer.attach import BufferedGNN, attach, detach
from aggbuffer.compare import Comparison, compare
from aggbuffer.config import BufferConfig, FitConfig
from aggbuffer.errors import AggBufferError
from aggbuffer.evaluate import Evaluation, evaluate
from aggbuffer.fit import FitResult, fit
from aggbuffer.io import load, save
from aggbuffer.version import __version__

__all__ = [
    "AggBufferError",
    "BufferConfig",
    "BufferedGNN",
    "Comparison",
    "Evaluation",
    "FitConfig",
    "FitResult",
    "__version__",
    "attach",
    "compare",
    "detach",
    "evaluate",
    "fit",
    "load",
    "save",
]
