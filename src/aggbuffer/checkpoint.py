"""What a run of ``fit`` needs to go on after it was killed, in one safetensors file; nothing is ever unpickled."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from aggbuffer.errors import BufferFileError
from aggbuffer.files import write_safetensors
from aggbuffer.graph import Graph, coo

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
        if path.is_dir():
            raise BufferFileError(f"The checkpoint {path} is a folder; name a file in it.")
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
        if metadata.get("run") != run:
            raise BufferFileError(
                f"The checkpoint {path} belongs to a run with other settings, another graph or another base model; "
                "delete it or name another file."
            )
        return cls(tensors, json.loads(metadata["progress"]))


def run_identity(settings: Mapping[str, Any], base: str, graph: Graph, used: Iterable[Tensor]) -> str:
    """A digest of all that decides how a run goes.

    Args:
        settings: Of the run and of the buffers.
        base: Fingerprint of the base.
        graph: Its features, edges, weights and attributes count.
        used: Training and validation nodes, and their labels.
    """
    weights = [graph.data.get(key) for key in ("edge_weight", "edge_attr")]
    adjacency = graph.data.get("adj_t")
    values = None if adjacency is None else coo(adjacency)[2]
    return digest_of([settings, base], (graph.x, graph.source, graph.target, *weights, values, *used))


def digest_of(header: object, tensors: Iterable[Tensor | None]) -> str:
    """A digest of JSON-ready values and of tensors."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for tensor in tensors:
        if tensor is None:
            digest.update(b"none;")
            continue
        digest.update(f"{list(tensor.shape)}:{tensor.dtype};".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
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
