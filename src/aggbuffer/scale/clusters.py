"""The graph cut into parts of about the same size with few edges between them, by METIS."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from aggbuffer.errors import AggBufferError, ConfigError
from aggbuffer.scale.source import NodeSource


def cut(source: NodeSource, count: int) -> Tensor:
    """The part of every node, ``[N]`` int64; the same for the same graph.

    Raises:
        AggBufferError: Without pymetis.
    """
    if count > source.num_nodes:
        raise ConfigError(f"clusters is {count}, but the graph has {source.num_nodes} nodes; expected at most as many.")
    try:
        import pymetis
    except ImportError:
        raise AggBufferError("Clusters need pymetis; run pip install 'aggbuffer[clusters]'.") from None
    row = torch.repeat_interleave(source.pointer.diff(), output_size=source.num_edges).numpy()
    column = source.column.numpy().astype(np.int64)
    if not source.is_undirected:  # METIS expects every edge in both directions
        row, column = np.concatenate([row, column]), np.concatenate([column, row])
    key = np.unique((row * source.num_nodes + column)[row != column])
    pointer = np.zeros(source.num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(key // source.num_nodes, minlength=source.num_nodes), out=pointer[1:])
    adjacency = pymetis.CSRAdjacency(pointer, key % source.num_nodes)
    return torch.as_tensor(np.asarray(pymetis.part_graph(count, adjacency)[1]), dtype=torch.int64)
