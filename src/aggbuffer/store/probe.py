"""A small part of a graph of any size, enough to see which layers a model runs."""

from __future__ import annotations

import torch
from torch_geometric.data import Data

from aggbuffer.scale.sampler import Relabelling, in_edges
from aggbuffer.scale.source import NodeSource, subgraph

_NODES, _FANOUT = 1024, 16


def probe_of(source: NodeSource) -> Data:
    """The nodes with the most in-edges among the first ones, some of those edges, and where they come from."""
    nodes = min(source.num_nodes, 64 * _NODES)
    best = source.degree[:nodes].topk(min(_NODES, nodes)).indices.sort().values
    found = in_edges(source, best, _FANOUT)
    places = Relabelling(source.num_nodes)
    places.append(best)
    places.add(found.source)
    ends = torch.stack([places.places(found.source), found.target()])
    return subgraph(source, places.finish(), ends, found.edge)
