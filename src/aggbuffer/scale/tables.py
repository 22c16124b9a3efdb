"""What a layer says of every node, kept in memory or, where that is short, in a file that nobody else sees."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import torch
from torch import Tensor

from aggbuffer.errors import ConfigError
from aggbuffer.scale.source import Nodes


class Budget:
    """How much memory may be taken.

    Half of it is for what layers say of all nodes; what does not fit is kept in files. A quarter is for what one chunk
    of the graph needs at a time.

    Args:
        memory: Bytes.
        kept: A table that is there already.
    """

    def __init__(self, memory: int, kept: Tensor | None = None) -> None:
        self.chunk = max(1, memory // 4)
        self._left = memory // 2 - (0 if kept is None else kept.numel() * kept.element_size())

    def table(self, rows: int, width: int, dtype: torch.dtype) -> Tensor:
        """Room for ``[rows, width]``, whose values are anything."""
        size = rows * width * torch.empty(0, dtype=dtype).element_size()
        if size <= self._left:
            self._left -= size
            return torch.empty(rows, width, dtype=dtype)
        return _in_a_file(rows, width, dtype)

    def free(self, table: Tensor) -> None:
        """To be told that a table is needed no longer."""
        if not table.untyped_storage().filename:
            self._left += table.numel() * table.element_size()


def _in_a_file(rows: int, width: int, dtype: torch.dtype) -> Tensor:
    try:
        with tempfile.NamedTemporaryFile(prefix="aggbuffer-") as file:  # the mapping lives on when its name is gone
            flat = torch.from_file(file.name, shared=True, size=rows * width, dtype=dtype)
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"There is no room for {rows} x {width} values in {tempfile.gettempdir()} ({str(error).splitlines()[0]}); "
            "raise memory, or let TMPDIR name a larger disk."
        ) from None
    return flat.view(rows, width)


def chunks(costs: Tensor, limit: int) -> Iterator[slice]:
    """Runs of neighbours in ``costs`` ``[n]`` whose sums stay below ``limit``, or that hold one item alone."""
    total = torch.cumsum(costs, 0)
    start, count = 0, costs.numel()
    while start < count:
        before = int(total[start - 1]) if start else 0
        end = int(torch.searchsorted(total, before + limit, right=True))
        end = max(end, start + 1)
        yield slice(start, end)
        start = end


def part_of(nodes: Tensor | None, part: slice) -> Nodes:
    """The nodes of a run: a slice where ``nodes`` is None, which means all."""
    return part if nodes is None else nodes[part]
