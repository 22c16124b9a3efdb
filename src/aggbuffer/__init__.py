"""Edge robustness for trained graph neural networks: attach, fit, evaluate, save, detach.

A name is imported when it is first used, so that ``aggbuffer --help`` need not wait seconds for torch.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from aggbuffer.version import __version__

if TYPE_CHECKING:
    from aggbuffer import data, interop, logs, store
    from aggbuffer.attach import attach, detach
    from aggbuffer.compare import Comparison, compare
    from aggbuffer.config import BatchConfig, BufferConfig, FitConfig
    from aggbuffer.diagnose import Diagnosis, diagnose
    from aggbuffer.errors import AggBufferError
    from aggbuffer.evaluate import Evaluation, evaluate
    from aggbuffer.fit import FitResult, fit
    from aggbuffer.io import load, save
    from aggbuffer.model import BufferedGNN
    from aggbuffer.scale.layerwise import infer
    from aggbuffer.sweep import SweepResult, sweep

__all__ = [
    "AggBufferError",
    "BatchConfig",
    "BufferConfig",
    "BufferedGNN",
    "Comparison",
    "Diagnosis",
    "Evaluation",
    "FitConfig",
    "FitResult",
    "SweepResult",
    "__version__",
    "attach",
    "compare",
    "data",
    "detach",
    "diagnose",
    "evaluate",
    "fit",
    "infer",
    "interop",
    "load",
    "logs",
    "save",
    "store",
    "sweep",
]

# Where each name lives; a module without names is public itself. Type checkers read the imports above instead.
_NAMES = {
    "attach": ("attach", "detach"),
    "compare": ("Comparison", "compare"),
    "config": ("BatchConfig", "BufferConfig", "FitConfig"),
    "data": (),
    "diagnose": ("Diagnosis", "diagnose"),
    "errors": ("AggBufferError",),
    "evaluate": ("Evaluation", "evaluate"),
    "fit": ("FitResult", "fit"),
    "interop": (),
    "io": ("load", "save"),
    "logs": (),
    "model": ("BufferedGNN",),
    "scale.layerwise": ("infer",),
    "store": (),
    "sweep": ("SweepResult", "sweep"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}


class _Package(ModuleType):
    """Imports public names on first use, and keeps functions from being hidden by submodules of the same name."""

    def __getattr__(self, name: str) -> Any:
        if name not in _HOME and name not in _NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = importlib.import_module(f"{__name__}.{_HOME.get(name, name)}")
        return getattr(module, name) if name in _HOME else module

    def __setattr__(self, name: str, value: object) -> None:
        # Python sets every imported submodule as an attribute of its package: aggbuffer.fit would cease to be callable.
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
