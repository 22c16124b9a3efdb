"""Recognise a base model again: a digest of its weights to the bit, and a few of them for other types."""

from __future__ import annotations

import hashlib
import json

import torch
from torch import Tensor, nn

_PROBED_ENTRIES = 64


def fingerprint(gnn: nn.Module) -> str:
    """SHA-256 over the names, shapes, types and bytes of a model's state.

    Equal fingerprints mean equal weights, to the bit. A base in another floating-point type has another fingerprint;
    to recognise it all the same, a buffer file also holds up to 64 entries of each of the base's tensors, evenly
    spread. Where the types differ, :func:`aggbuffer.load` compares those, to the precision of the coarser type.
    """
    digest = hashlib.sha256()
    for name, value in _state(gnn):
        digest.update(f"{name}:{list(value.shape)}:{value.dtype};".encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _state(gnn: nn.Module) -> list[tuple[str, Tensor]]:
    return sorted((name, value) for name, value in gnn.state_dict().items() if isinstance(value, Tensor))


def structure_of(gnn: nn.Module) -> str:
    """A digest of the names and shapes in a model's state."""
    shapes = json.dumps([(name, list(value.shape)) for name, value in _state(gnn)])
    return hashlib.sha256(shapes.encode()).hexdigest()


def probe_of(gnn: nn.Module) -> Tensor:
    """A few entries of every tensor, in float64, which holds all of torch's real types exactly."""
    parts = [torch.empty(0, dtype=torch.float64)]
    for _, value in _state(gnn):
        flat = value.detach().reshape(-1)
        at = torch.linspace(0, max(flat.numel() - 1, 0), min(flat.numel(), _PROBED_ENTRIES)).long()
        parts.append(flat[at.to(flat.device)].cpu().double())
    return torch.cat(parts)


def precision_of(gnn: nn.Module) -> str:
    """The coarsest floating-point type of a model."""
    types = {value.dtype for _, value in _state(gnn) if value.is_floating_point()}
    return dtype_name(max(types, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float64))


def dtype_name(dtype: torch.dtype) -> str:
    """``torch.float32`` as ``float32``."""
    return str(dtype).removeprefix("torch.")


def dtype_named(name: str) -> torch.dtype:
    """The other way round.

    Raises:
        ValueError: If there is no such type.
    """
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name!r} is no dtype")
    return dtype
