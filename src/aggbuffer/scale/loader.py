"""Batches that a PyG loader of the user's makes."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from aggbuffer.errors import ConfigError, GraphError
from aggbuffer.graph import is_sparse_adjacency
from aggbuffer.scale.batch import Batch
from aggbuffer.scale.source import NodeSource, pointer_of


def from_loader(source: NodeSource, data: object) -> Batch:
    """A batch of a loader: its first ``batch_size`` nodes are the seeds, or all where it does not tell.

    Args:
        source: The whole graph, whose degrees count.
        data: A ``Data`` with ``n_id`` ``[n]``, the number of each node in the whole graph.
    """
    if not isinstance(data, Data):
        raise ConfigError(f"The loader gave a {type(data).__name__}; expected batches that are a Data.")
    nodes = data.get("n_id")
    if not isinstance(nodes, Tensor):
        raise ConfigError(
            "The loader's batches have no n_id, which numbers their nodes in the whole graph; set data.n_id = "
            "torch.arange(data.num_nodes) before the loader is made."
        )
    edges = data.get("edge_index")
    if edges is None or is_sparse_adjacency(edges):
        raise ConfigError("The loader's batches have no edge_index; expected a Data with x, edge_index and n_id.")
    if data.x is None or data.x.size(0) != nodes.numel() or data.x.size(1) != source.num_features:
        raise GraphError(
            f"The loader's batches do not fit the graph: expected {source.num_features} features for each of "
            f"{nodes.numel()} nodes in n_id."
        )
    if nodes.numel() and (int(nodes.min()) < 0 or int(nodes.max()) >= source.num_nodes):
        raise GraphError(f"The loader's n_id refers to node {int(nodes.max())}; the graph has {source.num_nodes}.")
    batch = _by_target(data, edges)
    column, row = batch.edge_index
    seeds: Any = batch.get("batch_size")
    return Batch(
        nodes=nodes,
        num_seeds=nodes.numel() if seeds is None else int(seeds),
        pointer=pointer_of(torch.bincount(row, minlength=nodes.numel())),
        column=column,
        edge=None,
        degree=source.degree[nodes],
        total=source.pointer[nodes + 1] - source.pointer[nodes],
        complete=False,
        beyond=None,
        data=batch,
    )


def _by_target(data: Data, edges: Tensor) -> Data:
    """The batch with its edges sorted by target, and what belongs to edges with them."""
    order = edges[1].argsort(stable=True)
    out = copy.copy(data)
    for key in data.keys():  # noqa: SIM118 (a PyG Data is no mapping)
        value = data[key]
        if isinstance(value, Tensor) and data.is_edge_attr(key):
            out[key] = value.index_select(data.__cat_dim__(key, value), order)
    out.edge_index = edges[:, order]
    return out
