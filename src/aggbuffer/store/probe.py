"""A small part of a graph of any size, enough to see which layers a model runs."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from aggbuffer.scale.sampler import Relabelling, in_edges
from aggbuffer.scale.source import NodeSource, subgraph

_NODES, _FANOUT = 1024, 16
_AT_ONCE = 2**16


def probe_of(source: NodeSource) -> Data:
    """Some nodes with in-edges, a few of those edges, and where they come from."""
    nodes = _some_with_edges(source)
    found = in_edges(source, nodes, _FANOUT)
    places = Relabelling(source.num_nodes)
    places.append(nodes)
    places.add(found.source)
    ends = torch.stack([places.places(found.source), found.target()])
    return subgraph(source, places.finish(), ends, found.edge)


def _some_with_edges(source: NodeSource) -> Tensor:
    for start in range(0, source.num_nodes, _AT_ONCE):
        nodes = (source.degree[start : start + _AT_ONCE] > 0).nonzero().squeeze(-1)
        if nodes.numel():
            return nodes[:_NODES] + start
    return torch.arange(min(2, source.num_nodes))
