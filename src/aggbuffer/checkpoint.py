"""What a run of ``fit`` needs to go on after it was killed, in one safetensors file; nothing is ever unpickled."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from aggbuffer.errors import BufferFileError
from aggbuffer.files import write_safetensors
from aggbuffer.graph import Graph

FORMAT = "aggbuffer-checkpoint-1"


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run between two epochs.

    Attributes:
        tensors: Current and best parameters, optimiser moments and the generator's state, by name.
        progress: Epochs done, history, best epoch and score: plain JSON values.
    """

    tensors: dict[str, Tensor]
    progress: dict[str, Any]

    def write(self, path: Path, run: str) -> None:
        """Replace the file at ``path`` in one step.

        Args:
            path: Where to.
            run: Identity of the run, which reading compares.
        """
        metadata = {"format": FORMAT, "run": run, "progress": json.dumps(self.progress)}
        write_safetensors(self.tensors, path, metadata)

    @classmethod
    def read(cls, path: Path, run: str) -> Checkpoint | None:
        """The checkpoint at ``path``, or None if there is none.

        Raises:
            BufferFileError: If the file is damaged, or was written by a run with other settings, graph or base.
        """
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        except (SafetensorError, OSError) as error:
            raise BufferFileError(
                f"The checkpoint {path} cannot be read ({error}); delete it to start anew."
            ) from error
        if metadata.get("format") != FORMAT:
            raise BufferFileError(f"{path} is no checkpoint of this library; name another file for the checkpoint.")
        if metadata["run"] != run:
            raise BufferFileError(
                f"The checkpoint {path} belongs to a run with other settings, another graph or another base model; "
                "delete it or name another file."
            )
        return cls(tensors, json.loads(metadata["progress"]))


def run_identity(settings: Mapping[str, Any], base: str, graph: Graph, nodes: tuple[Tensor, Tensor]) -> str:
    """A digest of all that decides how a run goes: settings, base, edges, features, training and validation nodes."""
    digest = hashlib.sha256(json.dumps([settings, base, list(graph.x.shape)], sort_keys=True).encode())
    for tensor in (graph.source, graph.target, *nodes, graph.x.double().sum(0)):
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state as named tensors."""
    state = optimizer.state_dict()["state"]
    return {f"optimizer.{i}.{key}": value for i, entry in state.items() for key, value in entry.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Undo :func:`optimizer_tensors`."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".", 2)
            state.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
