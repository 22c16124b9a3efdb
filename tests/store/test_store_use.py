"""A store is used as a graph in memory is, with the same results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from store_inputs import Inputs, write_inputs
from store_limited import BATCH, FIT, MEMORY, fitted
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


@pytest.mark.parametrize("weighted", [False, True])
def test_fit_on_a_store_gives_what_it_gives_in_memory(tmp_path: Path, weighted: bool) -> None:
    graph, data = opened(tmp_path, nodes=2_000, edges=8_000, weighted=weighted)
    found, expected = fitted(graph), fitted(data)
    assert any(bool(parameter.any()) for parameter in expected.buffer_parameters())
    for ours, theirs in zip(found.buffer_parameters(), expected.buffer_parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


def test_evaluate_on_a_store_scores_as_in_memory(tmp_path: Path) -> None:
    graph, data = opened(tmp_path, nodes=3_000, edges=15_000)
    model = shaken(ab.attach(seeded(GCN), graph))
    found, expected = ab.evaluate(model, graph, memory=2**18), ab.evaluate(model, data)
    for name in ("overall", "head", "tail", "homophilous", "heterophilous"):
        assert getattr(found, name) == getattr(expected, name), name
    for share in (1, 0):  # in between, other edges go
        assert found.edge_removal[share].accuracy == expected.edge_removal[share].accuracy
    assert found.edge_removal[0.5].accuracy == pytest.approx(expected.edge_removal[0.5].accuracy, abs=0.05)


def test_a_store_asks_for_mini_batches_and_for_what_it_cannot_do(tmp_path: Path) -> None:
    graph, _ = opened(tmp_path)
    gnn = seeded(GCN)
    with pytest.raises(ab.AggBufferError, match="in mini-batches; pass batch="):
        ab.fit(ab.attach(gnn, graph), graph)
    with pytest.raises(ab.AggBufferError, match="GraphStore on disk, and this needs one in memory"):
        ab.diagnose(seeded(GCN), graph)
    with pytest.raises(ab.AggBufferError, match="has 5 features per node, but the model was attached to one with 7"):
        ab.infer(ab.attach(seeded(GCN), Data(x=torch.rand(5, 7), edge_index=torch.tensor([[0], [1]]))), other(tmp_path))


def test_a_checkpoint_on_a_store_knows_its_graph(tmp_path: Path) -> None:
    graph, _ = opened(tmp_path)
    options = FIT | {"batch": ab.BatchConfig(**BATCH), "checkpoint": tmp_path / "checkpoint"}  # type: ignore[arg-type]
    ab.fit(ab.attach(seeded(GCN), graph), graph, **options)  # type: ignore[arg-type]
    again = ab.fit(ab.attach(seeded(GCN), graph), graph, **options)  # type: ignore[arg-type]
    assert again.epochs == FIT["max_epochs"]
    (tmp_path / "elsewhere").mkdir()
    elsewhere, _ = opened(tmp_path / "elsewhere", seed=1)
    with pytest.raises(ab.AggBufferError, match="another graph"):
        ab.fit(ab.attach(seeded(GCN), elsewhere), elsewhere, **options)  # type: ignore[arg-type]


def other(tmp_path: Path) -> GraphStore:
    """A store with other features."""
    inputs = write_inputs(tmp_path / "other", width=5)
    store.build(inputs.folder, tmp_path / "other.store")
    return store.open(tmp_path / "other.store")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the limit does not hold for what is mapped")
def test_less_memory_than_the_graph_takes_is_enough(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path / "raw", nodes=100_000, edges=300_000, width=256)  # 98 MiB of features
    script = [
        sys.executable,
        str(Path(__file__).with_name("store_limited.py")),
        str(inputs.folder),
        str(tmp_path),
        "80",
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    data = in_memory(inputs)
    model = fitted(data)
    found = load_file(tmp_path / "found.safetensors")
    for place, parameter in enumerate(model.buffer_parameters()):
        torch.testing.assert_close(found[str(place)], parameter.detach(), atol=1e-6, rtol=0)
    logits = ab.infer(model, data, memory=MEMORY, nodes=torch.arange(500))
    torch.testing.assert_close(found["logits"], logits, atol=1e-5, rtol=1e-5)
    expected = ab.evaluate(model, data, keep=(1,), memory=MEMORY).to_dict()
    told = json.loads((tmp_path / "found.json").read_text())
    assert told["overall"]["accuracy"] == pytest.approx(expected["overall"]["accuracy"], abs=1e-4)
