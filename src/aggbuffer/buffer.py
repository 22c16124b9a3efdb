"""The block itself: AGG_B = (D + I)^-1 [H(0) | … | H(l-1)] W. No hooks, no model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from aggbuffer.config import Block

Aggregate = Callable[[Tensor], Tensor]


class AggregationBuffer(nn.Module):
    """The term that is added to one aggregation.

    It starts at zero, so attaching it changes nothing. Its paper form depends on the edges only through the degree:
    it answers a change of the neighbourhood (C1) and grows as edges go (C2).

    Args:
        widths: Width of each representation it reads, d_0 … d_{l-1}.
        out_width: Width of the aggregation that it corrects.
        block: ``"agg_b"``, or one of the paper's ablations of it.
        bias: Whether a bias joins inside the degree normalisation.
    """

    def __init__(
        self,
        widths: Sequence[int],
        out_width: int,
        *,
        block: Block = "agg_b",
        bias: bool = False,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.widths = tuple(widths)
        self.block = block
        self.reads_all = block in ("agg_b", "jknet")
        self.divides_by_degree = block in ("agg_b", "single")
        in_width = sum(self.widths) if self.reads_all else self.widths[-1]
        self.weight = nn.Parameter(torch.zeros(in_width, out_width, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(out_width, device=device, dtype=dtype)) if bias else None

    def forward(self, hidden: Sequence[Tensor], inverse_degree: Tensor, aggregate: Aggregate | None = None) -> Tensor:
        """The term.

        Args:
            hidden: H(0) … H(l-1), each ``[N, d_k]``.
            inverse_degree: 1 / (d_i + 1) of every node in the graph of this pass, ``[N, 1]``.
            aggregate: The layer's own aggregation, which the block ``"agg"`` needs, ``[N, out_width]`` to the same.

        Returns:
            ``[N, out_width]``.
        """
        read = torch.cat(tuple(hidden), dim=-1) if self.reads_all else hidden[-1]
        term = read @ self.weight
        if self.bias is not None:
            term = term + self.bias
        if self.block == "agg":
            assert aggregate is not None
            return aggregate(term)
        return inverse_degree * term if self.divides_by_degree else term

    def extra_repr(self) -> str:
        return f"{'+'.join(map(str, self.widths))} -> {self.weight.size(1)}, block={self.block!r}"
