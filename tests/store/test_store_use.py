"""A store is used as a graph in memory is, with the same results."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from store_inputs import Inputs, write_inputs
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GraphSAGE

import aggbuffer as ab
from aggbuffer import store
from aggbuffer.graph import Graph
from aggbuffer.scale.source import GraphSource, NodeSource, is_source
from aggbuffer.store import GraphStore


def in_memory(inputs: Inputs) -> Data:
    """The same graph as a ``Data``, its edges in the order of a store."""
    ends = torch.stack([torch.from_numpy(inputs.source), torch.from_numpy(inputs.target)])
    data = Data(x=torch.from_numpy(inputs.x), edge_index=ends[:, inputs.order.copy()], y=torch.from_numpy(inputs.y))
    for column, name in enumerate(("train_mask", "val_mask", "test_mask")):
        data[name] = torch.from_numpy(inputs.masks[:, column].copy())
    if inputs.weight is not None:
        data.edge_weight = torch.from_numpy(inputs.weight[inputs.order])
    return data


def opened(tmp_path: Path, **options: bool | int) -> tuple[GraphStore, Data]:
    inputs = write_inputs(tmp_path / "raw", **options)  # type: ignore[arg-type]
    store.build(inputs.folder, tmp_path / "store", memory="4MiB")
    return store.open(tmp_path / "store"), in_memory(inputs)


def seeded(kind: type[nn.Module], **options: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return kind(7, 8, 2, 3, **options).eval()


def shaken(model: ab.BufferedGNN) -> ab.BufferedGNN:
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.buffer_parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=draw))
    return model.eval()


@pytest.mark.parametrize("weighted", [False, True])
def test_a_store_offers_what_a_graph_in_memory_offers(tmp_path: Path, weighted: bool) -> None:
    graph, data = opened(tmp_path, weighted=weighted)
    assert is_source(graph)
    same: NodeSource = graph
    memory: NodeSource = GraphSource(Graph.of(data))
    for name in ("num_nodes", "num_features", "num_edges", "dtype", "has_loops", "is_undirected", "layout"):
        assert getattr(same, name) == getattr(memory, name), name
    assert set(same.node_names) == set(memory.node_names)
    assert same.edge_names == memory.edge_names
    for name in ("pointer", "column", "degree", "matrix"):
        assert torch.equal(getattr(same, name), getattr(memory, name)), name
    for nodes in (torch.tensor([5, 0, 5]), slice(3, 9)):
        assert torch.equal(same.features(nodes), memory.features(nodes))
        for name in same.node_names:
            assert torch.equal(same.node_values(name, nodes), memory.node_values(name, nodes))
        for name in same.edge_names:
            assert torch.equal(same.edge_values(name, nodes), memory.edge_values(name, nodes))


@pytest.mark.parametrize("kind", [GCN, GraphSAGE, GAT])
def test_attach_and_infer_from_a_store_give_what_the_model_gives(tmp_path: Path, kind: type[nn.Module]) -> None:
    graph, data = opened(tmp_path, nodes=2_000, edges=8_000)
    from_store = shaken(ab.attach(seeded(kind), graph))
    from_memory = shaken(ab.attach(seeded(kind), data))
    assert from_store.layers == from_memory.layers
    with torch.no_grad():
        expected = from_memory(data.x, data.edge_index)
    for memory in (2**16, 2**30):
        found = ab.infer(from_store, graph, memory=memory)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
