"""Products of tall matrices with narrow ones, in the layout and order that the processor's library does best."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

NARROW = 64


def times(x: Tensor, weight: Tensor) -> Tensor:
    """``x @ weight`` with gradients for both.

    Args:
        x: ``[N, width]``.
        weight: ``[width, a]``, narrow or not.
    """
    return cast(Tensor, _Times.apply(x, weight)) if weight.size(1) <= NARROW else x @ weight  # type: ignore[no-untyped-call]


def joined(x: Tensor, frozen: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """``x @ frozen`` and ``x @ own``, with gradients for ``x`` and ``own``: large matrices are read and written once.

    Args:
        x: ``[N, width]``.
        frozen: ``[width, a]``.
        own: ``[width, b]``.
    """
    return cast(tuple[Tensor, Tensor], _Joined.apply(x, frozen, own))  # type: ignore[no-untyped-call]


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        of_x = gradients[0] @ weight.t() if ctx.needs_input_grad[0] else None
        return of_x, _of_weight(x, gradients[0]) if ctx.needs_input_grad[1] else None


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, frozen: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        both, width = torch.cat([frozen, own], dim=1), frozen.size(1)
        ctx.save_for_backward(x, both)
        product = _product(x, both)
        return product[:, :width].contiguous(), product[:, width:].contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, Tensor]:
        x, both = ctx.saved_tensors
        of_x = torch.cat(gradients, dim=1) @ both.t() if ctx.needs_input_grad[0] else None
        return of_x, None, _of_weight(x, gradients[1])


def _product(x: Tensor, weight: Tensor) -> Tensor:
    # Milliseconds for 2,708 x 512 times 512 x a, one thread, as it stands / by columns / transposed:
    # a = 7: 1.19 / 0.45 / 0.37; a = 15: 1.27 / 1.27 / 0.53; a = 16: 0.47 / 0.47 / 0.48; above 32 all are alike. With
    # 19,717 rows and a = 3, transposed takes three times as long as by columns.
    width = weight.size(1)
    if width <= 8:
        return x @ weight.t().contiguous().t()
    if width < 32 and width % 16:
        return (weight.t().contiguous() @ x.t()).t().contiguous()
    return x @ weight


def _of_weight(x: Tensor, gradient: Tensor) -> Tensor:
    # In this order seven times as fast as xᵀ times the gradient.
    return (gradient.t() @ x).t()
