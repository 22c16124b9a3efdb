"""Whether tensors and modules are still what they were, however they may have been changed in between."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import is_

import torch
from torch import Tensor, nn

_AS_WHOLE = {torch.float32: torch.int32, torch.float64: torch.int64}


@dataclass(frozen=True, eq=False)
class Contents:
    """What some tensors held at one time.

    torch counts the writes that it sees. It does not see those through ``.data``, through a numpy array over the same
    memory, or those of its own fused optimisers, so the values are looked at too.

    Attributes:
        places: Where each tensor lies, and how many writes torch has counted.
        digests: Of each, a few numbers that change with its values.
    """

    places: tuple[tuple[int, int], ...]
    digests: tuple[Tensor, ...]

    @classmethod
    def of(cls, tensors: Iterable[Tensor]) -> Contents:
        kept = tuple(tensors)
        places = tuple((t.data_ptr(), writes(t)) for t in kept)
        with torch.no_grad():
            return cls(places, tuple(_digest(t) for t in kept))

    def same_as(self, other: Contents) -> bool:
        if self.places != other.places:
            return False
        return all(torch.equal(a, b) for a, b in zip(self.digests, other.digests, strict=True))


def writes(tensor: Tensor) -> int:
    """How many writes torch has counted; it counts none for a tensor that was made in inference mode."""
    return 0 if tensor.is_inference() else tensor._version


def _digest(tensor: Tensor) -> Tensor:
    """A number for each row, as a whole number, so that a NaN equals itself; of edges and vectors, a copy.

    A matrix is multiplied with a fixed random vector: one pass over its memory, and a few numbers to keep. What that
    cannot tell apart differs by less than a product with it rounds.
    """
    whole = _AS_WHOLE.get(tensor.dtype)
    if whole is None:
        return tensor.detach().clone()
    if tensor.dim() < 2:
        return tensor.detach().clone().view(whole)
    rows = tensor.detach().flatten(1)
    direction = torch.rand(rows.size(1), generator=torch.Generator().manual_seed(0), dtype=rows.dtype) + 0.5
    return (rows @ direction).view(whole)


class Parts:
    """What a model is made of beside the values of its tensors: modules, their settings, and what is hooked into them.

    They are held, so that nothing new can be taken for them because it lies where they lay.
    """

    def __init__(self, model: nn.Module) -> None:
        self.objects: list[object] = []
        for module in model.modules():
            self.objects.append(module)
            for name, value in vars(module).items():
                self.objects += (name, value)
                if isinstance(value, dict):  # hooks, among others
                    self.objects += (*value, *value.values())

    def same_as(self, other: Parts) -> bool:
        return len(self.objects) == len(other.objects) and all(map(is_, self.objects, other.objects))
