"""Edge lists and sparse matrices as tensors."""

from __future__ import annotations

import torch
from torch import Tensor


def undirected(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Give every edge both directions and drop duplicates and self-loops.

    Args:
        edge_index: ``[2, E]`` integer node pairs in any order.
        num_nodes: N; every entry of ``edge_index`` is below it.

    Returns:
        ``[2, E']`` int64, sorted by source, then target.
    """
    source, target = edge_index.long()
    keep = source != target
    source, target = source[keep], target[keep]
    # One integer per directed edge: sorting numbers is several times faster than sorting pairs.
    keys = torch.unique(torch.cat([source * num_nodes + target, target * num_nodes + source]))
    return torch.stack([keys // num_nodes, keys % num_nodes])


def from_csr(indptr: Tensor, indices: Tensor) -> Tensor:
    """Write a compressed sparse row pattern as a list of node pairs.

    Args:
        indptr: ``[N + 1]`` row starts.
        indices: ``[E]`` columns.

    Returns:
        ``[2, E]`` int64, row over column.
    """
    rows = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.long().diff())
    return torch.stack([rows, indices.long()])


def dense_from_csr(indptr: Tensor, indices: Tensor, values: Tensor, columns: int) -> Tensor:
    """Write a compressed sparse row matrix out.

    Args:
        indptr: ``[N + 1]`` row starts.
        indices: ``[E]`` columns, each below ``columns``.
        values: ``[E]``.
        columns: F.

    Returns:
        ``[N, F]`` float32.
    """
    rows, positions = from_csr(indptr, indices)
    dense = torch.zeros(len(indptr) - 1, columns)
    dense[rows, positions] = values.float()
    return dense
