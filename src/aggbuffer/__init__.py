"""Edge robustness for trained graph neural networks: attach, fit, evaluate, save, detach."""

from aggbuffer.attach import BufferedGNN, attach, detach
from aggbuffer.config import BufferConfig, FitConfig
from aggbuffer.errors import AggBufferError
from aggbuffer.version import __version__

__all__ = [
    "AggBufferError",
    "BufferConfig",
    "BufferedGNN",
    "FitConfig",
    "__version__",
    "attach",
    "detach",
]
