"""Search settings of ``fit`` with Optuna: on one machine or many, every point once, none lost."""

from aggbuffer.sweep.result import SweepResult
from aggbuffer.sweep.run import sweep
from aggbuffer.sweep.space import PAPER_SPACE, Range, Space

__all__ = ["PAPER_SPACE", "Range", "Space", "SweepResult", "sweep"]
