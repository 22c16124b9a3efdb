"""The methods that the paper compares, on graphs small enough to check them against their literal form."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn.conv.gcn_conv import gcn_norm

import aggbuffer as ab
from aggbuffer.data import demo_graph
from aggbuffer.fast.passes import FastPasses
from aggbuffer.fast.runner import FastLayers
from aggbuffer.graph import Graph
from aggbuffer.passes import choose_passes
from aggbuffer.perturb import keep_mask
from conftest import seeded, shake, small_graph
from paper.bases import GNN, new
from paper.bases.convs import RandomWalkConv, fast_forms
from paper.bases.store import file_for
from paper.methods import Task, by_name, dropmessage, dropnode
from paper.methods.graphpatcher import local
from paper.methods.graphpatcher.local import Seen, Surroundings, answers
from paper.methods.graphpatcher.model import Generator, read
from paper.methods.graphpatcher.training import DEFAULTS as PATCHER_DEFAULTS
from paper.methods.graphpatcher.training import Curriculum
from paper.methods.graphpatcher.training import fit as fit_patcher
from paper.settings import BaseSettings, BufferSettings

BASE = BaseSettings(16, 1e-2, 5e-4, 0.3, max_epochs=4)
BUFFER = BufferSettings(0.5, 0.2, 0.5)
FITTED = {"max_epochs": 3}
PATCHER = {"hidden": 12, "batch": 8, "max_iterations": 4, "validate_every": 2}
BASE_METHODS = ("MLP", "GCN", "DropEdge", "DropNode", "DropMessage", "TUNEUP")


def task(folder: Path, **changes: object) -> Task:
    return replace(Task("demo", 0, demo_graph(), folder, BASE, BUFFER, {}), **changes)


@pytest.mark.parametrize("name", list(by_name()))
def test_every_method_gives_a_model_that_can_be_evaluated(name: str, tmp_path: Path) -> None:
    params = {} if name in BASE_METHODS else PATCHER if name == "GraphPatcher" else FITTED
    unit = task(tmp_path, params=params)
    outcome = by_name()[name](unit)
    evaluation = ab.evaluate(outcome.model, unit.data, keep=(1, 0))
    assert evaluation.overall.accuracy > 0
    assert {"epochs", "best_epoch", "val_accuracy", "seconds"} <= set(outcome.record)


# DropMessage


def literal_messages(data: Data, x: Tensor) -> tuple[Tensor, Tensor]:
    """Every message of a GCN layer over ``x`` and its receiver, by receiver and then by sender."""
    edges, weight = gcn_norm(data.edge_index, None, data.num_nodes)
    order = (edges[1] * data.num_nodes + edges[0]).argsort()
    edges, weight = edges[:, order], weight[order]
    return weight.unsqueeze(-1) * x[edges[0]], edges[1]


@pytest.mark.parametrize("at_once", [1, 100, 10**6])
def test_dropmessage_equals_the_literal_message_matrix(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropmessage, "_AT_ONCE", at_once)
    data = small_graph()
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(data.num_nodes, 5, generator=draw).double().requires_grad_()
    data.x = data.x.double()
    whole = FastLayers(Graph.of(data)).whole
    messages, receiver = literal_messages(data, x)
    draws = torch.randint(256, messages.shape, generator=draw).to(torch.uint8)
    degree = whole.inverse_degree.sqrt()
    found = degree * dropmessage.lossy_sum(degree * x, whole, True, draws, 77)
    kept = messages * (draws >= 77) * 256 / (256 - 77)
    expected = torch.zeros_like(x).index_add(0, receiver, kept)
    assert torch.allclose(found, expected)
    back = torch.randn(expected.shape, generator=draw, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(expected, x, back, retain_graph=True)
    (found_gradient,) = torch.autograd.grad(found, x, back)
    assert torch.allclose(found_gradient, gradient)


def test_dropmessage_keeps_the_mean_of_the_aggregation() -> None:
    data = small_graph()
    layers = FastLayers(Graph.of(data))
    view = dropmessage.DropMessage(0.5).view(layers, torch.Generator().manual_seed(0))
    runs = torch.stack([view.propagate(data.x, "sym", loops=True) for _ in range(3000)])
    whole = layers.whole.propagate(data.x, "sym", loops=True)
    assert (runs.mean(0) - whole).abs().max() < 5 * runs.std(0).max() / 3000**0.5
    assert (runs.std(0) > 0).all()


def test_dropmessage_that_drops_everything_leaves_nothing() -> None:
    data = small_graph()
    view = dropmessage.DropMessage(1.0).view(FastLayers(Graph.of(data)), torch.Generator())
    assert not view.propagate(data.x, "sym", loops=True).any()


# DropNode


def test_dropnode_drops_the_same_rows_of_a_layer_and_its_residual() -> None:
    data = small_graph()
    layers = FastLayers(Graph.of(data))
    gnn = new(data, replace(BASE, residual=True), seed=0).eval()
    method = dropnode.DropNode(0.5)
    view = method.view(layers, torch.Generator().manual_seed(1))
    with layers.installed(method.forms(gnn)), layers.over(view):
        found = gnn(data.x, view.edges)
    draw = torch.Generator().manual_seed(1)
    rows = [dropnode.row_scale(data.num_nodes, 0.5, draw) for _ in gnn.convs]
    assert {*rows[0].flatten().tolist()} == {0.0, 2.0}
    hidden = gnn.convs[0](data.x * rows[0], data.edge_index) + gnn.residuals[0](data.x * rows[0], data.edge_index)
    hidden = gnn.norms[0](hidden).relu() * rows[1]
    expected = gnn.convs[1](hidden, data.edge_index) + gnn.residuals[1](hidden, data.edge_index)
    assert torch.allclose(found, expected, atol=1e-6)


# Bases


def test_random_walk_gcn_against_the_dense_formula() -> None:
    data = small_graph()
    conv = RandomWalkConv(data.num_features, 5)
    adjacency = torch.eye(data.num_nodes)
    adjacency[data.edge_index[1], data.edge_index[0]] = 1.0
    with torch.no_grad():
        conv.bias.uniform_(generator=torch.Generator().manual_seed(0))
        expected = adjacency @ data.x @ conv.lin.weight.t() / adjacency.sum(1, keepdim=True) + conv.bias
        assert torch.allclose(conv(data.x, data.edge_index), expected, atol=1e-6)


BASES = [
    {},
    {"aggregation": "rw"},
    {"residual": True},
    {"architecture": "mlp"},
    {"architecture": "sage"},
    {"architecture": "gat"},
    {"architecture": "sgc"},
    {"architecture": "gin"},
    {"layers": 5, "activation": "tanh"},
]


@pytest.mark.parametrize("changes", BASES, ids=str)
def test_a_base_is_the_same_over_a_view_as_over_its_edges(changes: dict[str, object]) -> None:
    data = small_graph()
    gnn = new(data, replace(BASE, **changes), seed=0).eval()
    graph = Graph.of(data)
    layers = FastLayers(graph)
    mask = keep_mask(graph, 0.5, torch.Generator().manual_seed(0))
    forms = fast_forms(gnn)
    for view in (layers.whole, layers.only(mask, "together")):
        with torch.no_grad(), layers.installed(forms), layers.over(view):
            found = gnn(data.x, view.edges)
        with torch.no_grad():
            assert torch.allclose(found, gnn(data.x, view.data.edge_index), atol=1e-5)


@pytest.mark.parametrize("changes", [b for b in BASES if b.get("architecture") != "mlp"], ids=str)
def test_buffers_attach_to_every_base_and_answer_to_the_edges(changes: dict[str, object], tmp_path: Path) -> None:
    unit = task(tmp_path, base=replace(BASE, **changes), params=FITTED)
    base = by_name()["GCN"](replace(unit, params={})).model
    outcome = by_name()["GCN_B paper"](unit)
    edges = unit.data.edge_index
    assert not torch.equal(base(unit.data.x, edges), base(unit.data.x, edges[:, ::2]))
    assert torch.isfinite(outcome.model(unit.data.x, edges)).all()
    with outcome.model.disabled():
        assert torch.equal(outcome.model(unit.data.x, edges), base(unit.data.x, edges))


@pytest.mark.parametrize("changes", [{"aggregation": "rw"}, {"architecture": "gin"}], ids=str)
def test_a_fit_runs_the_layers_that_pyg_lacks_over_its_views(changes: dict[str, object]) -> None:
    data = small_graph()
    model = shake(ab.attach(new(data, replace(BASE, **changes), seed=0), data))
    passes = choose_passes(model, Graph.of(data), accelerate=True)
    assert isinstance(passes, FastPasses)
    with passes.ready():
        assert all("forward" in vars(conv) for conv in model.base.convs)


def test_a_kept_base_is_found_again_and_another_setting_is_another_file(tmp_path: Path) -> None:
    unit = task(tmp_path)
    first, again = by_name()["GCN"](unit), by_name()["GCN"](unit)
    assert first.record == again.record
    assert all(torch.equal(a, b) for a, b in zip(first.model.parameters(), again.model.parameters(), strict=True))
    changed = {
        "hidden": 8, "lr": 1.0, "weight_decay": 0.0, "dropout": 0.0, "aggregation": "rw", "residual": True, "layers": 3,
        "patience": 1, "max_epochs": 1, "architecture": "sage", "activation": "elu",
    }  # fmt: skip
    assert set(changed) == {f.name for f in fields(BaseSettings)}
    names = {file_for(tmp_path, "x", replace(BASE, **{key: value}), {}) for key, value in changed.items()}
    assert len(names | {file_for(tmp_path, "x", BASE, {}), file_for(tmp_path, "x", BASE, {"drop": 0.1})}) == 13


def test_an_unknown_hyperparameter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no hyperparameter 'dropp'"):
        by_name()["DropEdge"](task(tmp_path, params={"dropp": 0.1}))


def test_training_leaves_the_global_random_state(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    for name in BASE_METHODS:
        by_name()[name](task(tmp_path))
    assert torch.equal(torch.get_rng_state(), before)


# GraphPatcher


def literal_answer(gnn: GNN, data: Data, anchor: int, lost: Tensor, virtual: Tensor) -> Tensor:
    """The GNN run on the whole graph without the messages of ``lost`` to the anchor, with virtual neighbours."""
    source, target = data.edge_index
    edges = data.edge_index[:, ~((target == anchor) & torch.isin(source, lost))]
    made = data.num_nodes + torch.arange(virtual.size(0))
    links = torch.stack([made, torch.full_like(made, anchor)])
    edges = torch.cat([edges, links, links.flip(0)], dim=1)
    return gnn(torch.cat([data.x, virtual]), edges)[anchor]


@pytest.mark.parametrize("changes", [{}, {"aggregation": "rw"}, {"residual": True, "activation": "elu"}], ids=str)
def test_graphpatcher_answers_at_many_anchors_as_the_gnn_does_at_each(changes: dict[str, object]) -> None:
    data = small_graph()
    gnn = new(data, replace(BASE, **changes), seed=0).eval().requires_grad_(False)
    net, around, draw = read(gnn), Surroundings(data.edge_index, data.num_nodes), torch.Generator().manual_seed(5)
    seen = Seen.of(net, data.x @ net.maps.t(), around)
    anchors = torch.tensor([3, 0, 13, 7])  # the last node is isolated
    ego = around.ego(anchors)
    kept = (torch.rand(ego.near.numel(), 1, generator=draw) >= 0.5).float()
    for count in (0, 1, 3):
        virtual = torch.randn(4, count, data.num_features, generator=draw)
        found = answers(net, seen, ego, kept, virtual @ net.maps.t())
        for i, anchor in enumerate(anchors.tolist()):
            lost = ego.near[(ego.who == i) & (kept.squeeze(-1) == 0)]
            assert torch.allclose(found[i], literal_answer(gnn, data, anchor, lost, virtual[i]), atol=1e-5)


def test_graphpatcher_patches_all_nodes_as_it_patches_each(monkeypatch: pytest.MonkeyPatch) -> None:
    data = small_graph()
    gnn = new(data, BASE, seed=0).eval()
    model, _ = fit_patcher(gnn, data, {**PATCHER_DEFAULTS, **PATCHER}, seed=0)
    everyone = torch.arange(data.num_nodes)
    together = model.patched(data.x, data.edge_index, everyone, [0, 1, 3])
    assert torch.allclose(together[0], gnn(data.x, data.edge_index), atol=1e-5)
    monkeypatch.setattr(local, "_AT_ONCE", 1)
    alone = [model.patched(data.x, data.edge_index, node.view(1), [0, 1, 3]) for node in everyone]
    assert torch.allclose(together, torch.cat(alone, dim=1), atol=1e-5)
    assert torch.allclose(together, model.patched(data.x, data.edge_index, everyone, [0, 1, 3]), atol=1e-5)

    generator, made = model.generator, torch.empty(0, data.num_features)  # literally, at one node
    for count in range(3):
        nets = generator.net(), Surroundings(data.edge_index, data.num_nodes)
        seen = Seen.of(nets[0], data.x @ nets[0].maps.t(), nets[1])
        ego = nets[1].ego(torch.tensor([4]))
        kept = torch.ones(ego.near.numel(), 1)
        read_out = answers(nets[0], seen, ego, kept, made.unsqueeze(0) @ nets[0].maps.t())
        made = torch.cat([made, generator.last(generator.code(read_out, generator.own(data.x[4:5])))])
        if count in (0, 2):
            expected = literal_answer(gnn, data, 4, torch.empty(0), made)
            assert torch.allclose(together[1 if count == 0 else 2, 4], expected, atol=1e-5)


def test_graphpatcher_learns_and_leaves_the_gnn_alone() -> None:
    data = demo_graph()
    gnn = new(data, BASE, seed=0).eval()
    before = {name: value.clone() for name, value in gnn.state_dict().items()}
    params = {**PATCHER_DEFAULTS, **PATCHER, "lr": 1e-2, "batch": 64}
    draw = torch.Generator().manual_seed(0)
    curriculum = Curriculum(gnn, data, params, draw)
    made_by = seeded(lambda: Generator(data.num_features, 12, 0.0))
    optimizer = torch.optim.AdamW(made_by.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        losses.append(curriculum.loss(made_by))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    assert all(torch.equal(value, before[name]) for name, value in gnn.state_dict().items())


def test_graphpatcher_refuses_what_it_is_not_written_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two layers"):
        by_name()["GraphPatcher"](task(tmp_path, base=replace(BASE, layers=3), params=PATCHER))
