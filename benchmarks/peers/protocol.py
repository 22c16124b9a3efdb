"""What a contender and the one who times it say to each other: a case in a file, requests and answers in lines.

It imports neither this library nor PyG, as the DGL contender has neither.

The contender writes one JSON object a line: ``{"ready": true}`` after its warm-up, ``{"seconds": …}`` after every step,
and a last one with its memory and versions. It is asked for a step by a line ``step``; ``stop`` or the end of its
input ends it.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

WARM_UP = 3  # steps that are not timed


@dataclass(frozen=True)
class Settings:
    """Everything about a case but its arrays.

    Attributes:
        graph: Its name.
        classes: C.
        hidden: Width of the hidden layers.
        layers: How many convolutions.
        residual: Whether there are residual connections and LayerNorm.
        aggregation: ``"sym"`` or ``"rw"``.
        drop_edge: Share of the edges that a buffer-training step drops.
        dropout: Of a buffer-training step.
        strength: λ of the robustness term.
        lr: Adam's, of the buffers.
        base_dropout: Of the base model's training.
        base_lr: Adam's, of the base model.
        base_weight_decay: Adam's, of the base model.
        threads: How many every contender uses.
    """

    graph: str
    classes: int
    hidden: int
    layers: int
    residual: bool
    aggregation: str
    drop_edge: float
    dropout: float
    strength: float
    lr: float
    base_dropout: float
    base_lr: float
    base_weight_decay: float
    threads: int


@dataclass(frozen=True)
class CaseFile:
    """What all contenders work on.

    Attributes:
        settings: Widths and ratios.
        x: ``[N, F]`` float32.
        edge_index: ``[2, E]`` int64, both directions of every edge, no self-loops.
        y: ``[N]`` int64.
        train_mask: ``[N]`` bool.
        val_mask: ``[N]`` bool.
        weights: The base model's: ``convs.0.lin.weight`` ``[out, in]``, ``convs.0.bias``, ``residuals.0.weight``, …
    """

    settings: Settings
    x: Tensor
    edge_index: Tensor
    y: Tensor
    train_mask: Tensor
    val_mask: Tensor
    weights: dict[str, Tensor]

    def write(self, path: Path) -> None:
        """Put everything into one file."""
        arrays = {name: getattr(self, name).numpy() for name in _ARRAYS}
        arrays |= {f"{_WEIGHT}{name}": value.detach().numpy() for name, value in self.weights.items()}
        np.savez(path, settings=np.array(json.dumps(asdict(self.settings))), **arrays)

    @classmethod
    def read(cls, path: Path) -> CaseFile:
        """What :meth:`write` wrote."""
        with np.load(path) as file:
            settings = Settings(**json.loads(str(file["settings"])))
            arrays = {name: torch.from_numpy(file[name]) for name in _ARRAYS}
            weights = {name[len(_WEIGHT) :]: torch.from_numpy(file[name]) for name in file if name.startswith(_WEIGHT)}
        return cls(settings, **arrays, weights=weights)

    @property
    def num_nodes(self) -> int:
        return self.x.size(0)


_ARRAYS = ("x", "edge_index", "y", "train_mask", "val_mask")
_WEIGHT = "weight."


class Turns:
    """Lets a contender make one step when it is asked to, and tells how long it took.

    ``turns.next()`` is called between steps, before the first one too; it answers whether to make another.
    """

    def __init__(self, requests: IO[str], answers: IO[str]) -> None:
        self._requests, self._answers = requests, answers
        self._made = -1
        self._started = 0.0
        self._notes: dict[str, Any] = {}

    def next(self) -> bool:
        """End the step that was made, and wait for the next request; after the last of them False."""
        ended = time.perf_counter()
        self._made += 1
        if self._made > WARM_UP:
            self._tell({"seconds": ended - self._started})
        elif self._made == WARM_UP:
            self._tell({"ready": True})
        if self._made >= WARM_UP and self._requests.readline().strip() != "step":
            return False
        self._started = time.perf_counter()
        return True

    def note(self, **values: Any) -> None:
        """Values for the last line; a later one of the same name replaces an earlier one."""
        self._notes |= values

    def end(self, versions: Mapping[str, str]) -> None:
        """Say the last line."""
        told = {"torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version(), **versions}
        self._tell({**self._notes, "peak_mib": memory("VmHWM"), "versions": told, "threads": torch.get_num_threads()})

    def _tell(self, message: Mapping[str, Any]) -> None:
        self._answers.write(json.dumps(message) + "\n")
        self._answers.flush()


Task = Callable[[CaseFile, Turns], None]


def run(tasks: Mapping[str, Task], versions: Mapping[str, str]) -> None:
    """What every contender's ``main`` does with its command line."""
    path, name = sys.argv[1:]
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    case = CaseFile.read(Path(path))
    torch.set_num_threads(case.settings.threads)
    torch.manual_seed(0)
    turns = Turns(sys.stdin, answers)
    turns.note(before_mib=memory("VmRSS"))
    tasks[name](case, turns)
    turns.end(versions)


def memory(field: str) -> float:
    """``VmRSS``, what this process holds now, or ``VmHWM``, the most it ever held, in MiB."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # the peak, also where asked for the present


def sample(logits: Tensor) -> list[list[float]]:
    """Some nodes' logits, for the contenders to be compared by."""
    nodes = torch.linspace(0, logits.size(0) - 1, 5).long()
    return [[round(value, 6) for value in row] for row in logits[nodes].tolist()]
