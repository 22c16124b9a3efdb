"""Layer by layer, in chunks, every model says what it says of the whole graph at once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GCNConv, GINConv, PairNorm, SGConv, global_mean_pool

import aggbuffer
from aggbuffer import BufferConfig, BufferedGNN
from aggbuffer.errors import GraphError, ModelError
from aggbuffer.graph import Graph
from aggbuffer.scale.draws import DropEdge, Kept
from aggbuffer.scale.layerwise import Layerwise
from aggbuffer.scale.source import GraphSource
from aggbuffer.scale.trial import probe
from conftest import CLASSES, FEATURES, Footprint, answer, as_csr, seeded, shake, small_graph
from helpers_fit import refused
from test_attach import (
    CONVS,
    HIDDEN,
    NO_CSR,
    READY,
    WEIGHTED,
    WITH_ATTRIBUTES,
    HandWritten,
    HandWrittenWithAttributes,
    HandWrittenWithWeights,
    mlp,
    sequential,
)

TINY = 24_000  # bytes, so that every layer takes several chunks


def check(gnn: nn.Module, data: Data, config: BufferConfig | None = None, *, memory: int = TINY) -> None:
    """The base and the model with moved buffers, all nodes and some; nothing about the model changes."""
    footprint = Footprint(gnn)
    gnn.eval()
    _same(gnn, data, memory)
    for part, training in zip(gnn.modules(), footprint.modes, strict=True):
        part.training = training
    model = shake(aggbuffer.attach(gnn, data, config))
    _same(model, data, memory)
    aggbuffer.detach(model)
    footprint.check()


def _same(model: nn.Module, data: Data, memory: int) -> None:
    with torch.no_grad():
        expected = _run(model, data)
    torch.testing.assert_close(aggbuffer.infer(model, data, memory=memory), expected, rtol=1e-5, atol=1e-5)
    some = torch.tensor([9, 2, 13])
    torch.testing.assert_close(
        aggbuffer.infer(model, data, memory=memory, nodes=some), expected[some], rtol=1e-5, atol=1e-5
    )


def _run(model: nn.Module, data: Data) -> Tensor:
    from aggbuffer.forward import default_forward

    if isinstance(model, BufferedGNN):
        with model.plainly():
            return model.run(data)
    return default_forward(model, data)


@pytest.mark.parametrize(("jk", "norm"), [(None, "BatchNorm"), ("cat", None), ("max", "LayerNorm"), ("lstm", None)])
@pytest.mark.parametrize("name", READY)
def test_ready_models(name: str, jk: str | None, norm: str | None) -> None:
    kwargs = {"norm_kwargs": {"mode": "node"}} if norm == "LayerNorm" else {}
    gnn = seeded(lambda: READY[name](FEATURES, HIDDEN, 3, CLASSES, dropout=0.5, jk=jk, norm=norm, **kwargs))
    check(gnn, small_graph())


@pytest.mark.parametrize("site", ["aggregation", "output"])
@pytest.mark.parametrize("name", CONVS)
def test_convolutions_in_a_hand_written_model(name: str, site: str) -> None:
    for directed, loops, csr in [(False, False, False), (True, True, False), (True, site == "output", True)]:
        if csr and name in NO_CSR:
            continue
        data = small_graph(directed=directed, loops=loops)
        gnn = seeded(lambda: HandWritten(CONVS[name]))
        check(gnn, as_csr(data) if csr else data, BufferConfig(site=site))


@pytest.mark.parametrize("weighted_degree", [False, True])
@pytest.mark.parametrize("name", WEIGHTED)
def test_edge_weights(name: str, weighted_degree: bool) -> None:
    data = small_graph(weights=True, directed=True, loops=True)
    config = BufferConfig(weighted_degree=weighted_degree)
    check(seeded(lambda: HandWrittenWithWeights(CONVS[name], "edge_weight")), data, config)
    if name not in NO_CSR:
        check(seeded(lambda: HandWritten(CONVS[name])), as_csr(small_graph(weights=True, directed=True)), config)


@pytest.mark.parametrize("name", WITH_ATTRIBUTES)
def test_edge_attributes(name: str) -> None:
    gnn = seeded(lambda: HandWrittenWithAttributes(WITH_ATTRIBUTES[name], "edge_attr"))
    check(gnn, small_graph(attributes=3))


def test_a_sequential_with_inplace_activation() -> None:
    check(seeded(sequential), small_graph(loops=True))
    check(seeded(sequential), as_csr(small_graph()))


@pytest.mark.parametrize("block", ["single", "jknet", "residual", "agg"])
def test_other_blocks(block: str) -> None:
    for data in (small_graph(directed=True), small_graph(weights=True)):
        gnn = seeded(lambda: GCN(FEATURES, HIDDEN, 3, CLASSES))
        check(gnn, data, BufferConfig(block=block, bias=True))  # type: ignore[arg-type]


def test_double_precision_to_the_last_digits() -> None:
    data = small_graph()
    data.x = data.x.double()
    gnn = seeded(lambda: GCN(FEATURES, HIDDEN, 3, CLASSES)).double()
    model = shake(aggbuffer.attach(gnn, data))
    with model.plainly(), torch.no_grad():
        torch.testing.assert_close(aggbuffer.infer(model, data, memory=TINY), model.run(data), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("conv", "form"),
    [
        (lambda: GCNConv(FEATURES, CLASSES), "OneAggregation"),
        (lambda: GINConv(mlp(FEATURES, CLASSES)), "OneAggregation"),
        (lambda: CONVS["SAGEConv"](FEATURES, CLASSES), "OneAggregation"),
        (lambda: SGConv(FEATURES, CLASSES, K=3), "KHops"),
        (lambda: CONVS["TAGConv"](FEATURES, CLASSES), "KHops"),
        (lambda: CONVS["ChebConv"](FEATURES, CLASSES), "KHops"),
        (lambda: CONVS["GATConv"](FEATURES, CLASSES), "ByTheLayer"),
    ],
)
def test_known_aggregations_are_computed_without_messages(conv: object, form: str) -> None:
    gnn = seeded(conv)  # type: ignore[arg-type]
    found = Layerwise(gnn, GraphSource(Graph.of(small_graph()))).plan.forms
    assert [type(one).__name__ for one in found] == [form]


def test_a_layer_that_looks_two_hops_away_is_given_two_hops() -> None:
    class ByDegreeOfSources(GCNConv):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(x, edge_index)

    def build() -> nn.Module:
        return HandWritten(lambda i, o: ByDegreeOfSources(i, o))

    data = small_graph(directed=True)
    forms = Layerwise(seeded(build).eval(), GraphSource(Graph.of(data))).plan.forms
    assert [(type(one).__name__, one.hops) for one in forms] == [("ByTheLayer", 2)] * 2
    check(seeded(build), data)


def test_self_loops_that_the_trial_has_not_seen_count() -> None:
    """PyG adds one to a self-loop of a sparse adjacency, and none to one of an edge index."""
    data = small_graph(nodes=1500, edges=4000)
    rare = torch.tensor([0, 700])
    data.edge_index = torch.cat([data.edge_index, rare.expand(2, -1)], dim=1)
    csr = as_csr(data)
    gnn = seeded(lambda: GCN(FEATURES, HIDDEN, 2, CLASSES)).eval()
    assert not probe(GraphSource(Graph.of(csr))).has_loops
    torch.testing.assert_close(aggbuffer.infer(gnn, csr), answer(gnn, csr.x, csr.adj_t), rtol=1e-5, atol=1e-5)


class Between(nn.Module):
    """Two convolutions and something between them."""

    def __init__(self, between: nn.Module) -> None:
        super().__init__()
        self.first, self.between, self.second = GCNConv(FEATURES, HIDDEN), between, GCNConv(HIDDEN, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.between(self.first(x, edge_index)), edge_index)


class Centre(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


class Pooling(Between):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index) + global_mean_pool(x, None).sum()


def test_models_that_mix_nodes_otherwise_are_refused_by_name() -> None:
    data = small_graph()
    for gnn, words in [
        (Between(PairNorm()), r"The module 'between' \(PairNorm\) mixes nodes"),
        (Between(Centre()), r"The module 'between' \(Centre\) mixes nodes"),
        (GCN(FEATURES, HIDDEN, 2, CLASSES, norm="GraphNorm"), r"The module 'norms.0' \(GraphNorm\) mixes nodes"),
        (GCN(FEATURES, HIDDEN, 2, CLASSES, norm="LayerNorm"), r"The module 'norms.0' \(LayerNorm\) mixes nodes"),
        (Pooling(nn.ReLU()), "The forward of Pooling mixes nodes"),
    ]:
        footprint = Footprint(gnn.eval())
        with refused(words, ModelError):
            aggbuffer.infer(gnn, data)
        footprint.check()


def test_layers_beyond_any_neighbourhood_are_refused() -> None:
    class Global(GCNConv):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(x, edge_index) - x.mean()

    gnn = HandWritten(lambda i, o: Global(i, o)).eval()
    with refused("'convs.0' .*depends on more than their neighbourhood", ModelError):
        aggbuffer.infer(gnn, small_graph())


def test_input_that_cannot_be_used_is_told_in_a_sentence() -> None:
    gnn, data = seeded(lambda: GCN(FEATURES, HIDDEN, 2, CLASSES)).eval(), small_graph()
    with refused("expected a torch.nn.Module"):
        aggbuffer.infer(3, data)  # type: ignore[arg-type]
    with refused("memory must be a whole number"):
        aggbuffer.infer(gnn, data, memory=0)
    with refused("has no 'my_mask'", GraphError):
        aggbuffer.infer(gnn, data, nodes="my_mask")
    with refused("has 5 features per node, but the model expects 6|could not run"):
        aggbuffer.infer(gnn, small_graph(features=5))
    model = aggbuffer.attach(gnn, data)
    with refused("has 5 features per node, but the model was attached to one with 6", GraphError):
        aggbuffer.infer(model, small_graph(features=5))
    with refused("cached=True", ModelError):
        aggbuffer.infer(seeded(lambda: GCN(FEATURES, HIDDEN, 2, CLASSES, cached=True)), data)


def test_disabled_buffers_and_a_custom_forward() -> None:
    class TakesData(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GCNConv(FEATURES, CLASSES)

        def forward(self, edges: Tensor, data: Data) -> tuple[Tensor, str]:
            return self.conv(data.x, edges) * data.scale, "and more"

    data = small_graph()
    data.scale = torch.rand(14, 1)
    gnn = seeded(TakesData)
    call = lambda model, data: model(data.edge_index, data)[0]  # noqa: E731
    expected = call(gnn, data)
    torch.testing.assert_close(aggbuffer.infer(gnn, data, memory=TINY, forward=call), expected)
    model = shake(aggbuffer.attach(gnn, data, forward=call))
    with model.disabled():
        torch.testing.assert_close(aggbuffer.infer(model, data, memory=TINY), expected)
    with torch.no_grad():
        torch.testing.assert_close(aggbuffer.infer(model, data, memory=TINY), call(model, data))


@pytest.mark.parametrize("name", ["GCN", "GraphSAGE"])
def test_what_is_kept_between_runs_follows_the_buffers(name: str) -> None:
    """The frozen map of the features is computed once, for whichever nodes, buffers and perturbed graphs come next."""
    data = small_graph(features=20)
    model = aggbuffer.attach(seeded(lambda: READY[name](20, HIDDEN, 2, CLASSES)), data)
    layerwise = Layerwise(model, GraphSource(Graph.of(data)), memory=2**20)
    for seed in range(3):
        shake(model, seed)
        with model.plainly(), torch.no_grad():
            expected = model.run(data)
        torch.testing.assert_close(layerwise.logits(), expected, rtol=1e-5, atol=1e-5)
        some = torch.tensor([3, 1])
        torch.testing.assert_close(layerwise.at(some).logits(), expected[some], rtol=1e-5, atol=1e-5)
        draw = DropEdge(seed, 0, 0.5)
        with model.plainly(), torch.no_grad():
            expected = model(data.x, data.edge_index[:, draw.kept(*data.edge_index, slice(None))])
        torch.testing.assert_close(layerwise.logits(draw), expected, rtol=1e-5, atol=1e-5)
    assert layerwise._kept is not None


def test_a_table_that_does_not_fit_is_kept_in_a_file() -> None:
    data = small_graph()
    gnn = seeded(lambda: GCN(FEATURES, HIDDEN, 3, CLASSES)).eval()
    torch.testing.assert_close(aggbuffer.infer(gnn, data, memory=1), answer(gnn, data.x, data.edge_index))


def test_perturbed_graphs() -> None:
    """What a draw leaves of the graph, self-loop weights included, as a full pass over that graph has it."""
    from aggbuffer.fast.passes import FastPasses

    data = small_graph(directed=True)
    graph, source = Graph.of(data), GraphSource(Graph.of(data))
    draw = DropEdge(1, 2, 0.5, weighs_loops=True)
    kept = draw.kept(graph.source, graph.target, slice(None))
    for build in (lambda: GCN(FEATURES, HIDDEN, 2, CLASSES), lambda: HandWritten(CONVS["SGConv"])):
        model = shake(aggbuffer.attach(seeded(build), data))
        layerwise, passes = Layerwise(model, source, memory=TINY), FastPasses(model, graph)
        with passes.ready(), torch.no_grad():
            expected = passes.run(passes.only(kept, "together", draw.loops(torch.arange(14), torch.float32)))
        torch.testing.assert_close(layerwise.logits(draw), expected, rtol=1e-5, atol=1e-5)
    for name in CONVS:
        gnn = seeded(lambda name=name: HandWritten(CONVS[name])).eval()
        of_reversed = kept[source.reversed.order]
        expected = answer(gnn, data.x, data.edge_index[:, kept])
        found = Layerwise(gnn, source, memory=TINY).logits(Kept(kept[source.order], of_reversed))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        same = Layerwise(gnn, source, memory=TINY).logits(DropEdge(1, 2, 0.5))
        torch.testing.assert_close(same, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["undirected", "directed", "loops", "flow", "csr"])
def test_evaluating_in_bounded_memory_gives_the_same_scores(kind: str) -> None:
    data = small_graph(nodes=60, edges=140, directed=kind == "directed", loops=kind == "loops")
    if kind == "csr":
        csr = as_csr(data)
        csr.y, csr.test_mask = data.y, data.test_mask
        data = csr
    build = CONVS["flow"] if kind == "flow" else GCNConv
    model = shake(aggbuffer.attach(seeded(lambda: HandWritten(build)), data))
    whole, layered = aggbuffer.evaluate(model, data), aggbuffer.evaluate(model, data, memory=20_000)
    assert layered.to_dict() == whole.to_dict()
    assert torch.equal(layered.predictions.degree, whole.predictions.degree)
    assert torch.equal(layered.predictions.agreement.isnan(), whole.predictions.agreement.isnan())
    for share, runs in whole.predictions.removed.items():
        assert torch.equal(layered.predictions.removed[share], runs)


def test_chunks_stay_within_the_budget() -> None:
    """No chunk of a layer but one of a single node holds more than a quarter of the memory."""
    from aggbuffer.scale.tables import Budget, chunks

    costs = torch.tensor([5, 1, 1, 1, 9, 30, 2, 2, 0, 0, 7])
    parts = list(chunks(costs, 10))
    assert torch.equal(torch.cat([torch.arange(part.start, part.stop) for part in parts]), torch.arange(11))
    assert all(int(costs[part].sum()) <= 10 or part.stop - part.start == 1 for part in parts)
    assert len(parts) == 5
    budget = Budget(1000)
    in_memory, in_file = budget.table(10, 10, torch.float32), budget.table(10, 10, torch.float32)
    assert in_memory.untyped_storage().filename is None
    assert in_file.untyped_storage().filename is not None
    assert F.relu(in_file.fill_(-1)).sum() == 0
    budget.free(in_memory)
    assert budget.table(12, 10, torch.float32).untyped_storage().filename is None
