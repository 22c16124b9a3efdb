"""One product for a frozen map and a buffer's map of the same representation."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from aggbuffer.fast.features import by_columns


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, frozen: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        both = by_columns(torch.cat([frozen, own], dim=1))
        ctx.save_for_backward(x, both)
        product, width = x @ both, frozen.size(1)
        return product[:, :width].contiguous(), product[:, width:].contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, Tensor]:
        x, both = ctx.saved_tensors
        of_x = torch.cat(gradients, dim=1) @ both.t() if ctx.needs_input_grad[0] else None
        return of_x, None, (gradients[1].t() @ x).t()


def joined(x: Tensor, frozen: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """``x @ frozen`` and ``x @ own``, with gradients for ``x`` and ``own``: large matrices are read and written once.

    Args:
        x: ``[N, width]``.
        frozen: ``[width, a]``.
        own: ``[width, b]``.
    """
    return cast(tuple[Tensor, Tensor], _Joined.apply(x, frozen, own))  # type: ignore[no-untyped-call]
