"""The loss and gradients of batches are those of the whole graph, however seeds are divided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    APPNP,
    GAT,
    GCN,
    GIN,
    ARMAConv,
    GCNConv,
    GraphSAGE,
    LGConv,
    Sequential,
    SGConv,
    TAGConv,
)

import aggbuffer
from aggbuffer import BatchConfig, BufferConfig, BufferedGNN, FitConfig
from aggbuffer.config import Loss
from aggbuffer.graph import Graph
from aggbuffer.passes import PlainPasses
from aggbuffer.scale.draws import DropEdge
from aggbuffer.scale.passes import BatchPasses
from aggbuffer.scale.source import GraphSource
from aggbuffer.scale.training import BatchTraining
from aggbuffer.training import Training
from conftest import as_csr, seeded, shake, small_graph
from helpers_fit import CLASSES, FEATURES, community_graph

HIDDEN = 8


def sgc() -> nn.Module:
    return Sequential("x, edge_index", [(SGConv(FEATURES, CLASSES, K=2), "x, edge_index -> x")])


def tag() -> nn.Module:
    return Sequential(
        "x, edge_index",
        [
            (TAGConv(FEATURES, HIDDEN, K=2), "x, edge_index -> x"),
            nn.ReLU(),
            (GCNConv(HIDDEN, CLASSES), "x, edge_index -> x"),
            (APPNP(K=2, alpha=0.2), "x, edge_index -> x"),
        ],
    )


MODELS: dict[str, Callable[[], nn.Module]] = {
    "GCN": lambda: GCN(FEATURES, HIDDEN, 2, CLASSES),
    "GCN wide": lambda: GCN(FEATURES, HIDDEN, 3, CLASSES, jk="cat", norm="BatchNorm"),
    "SAGE": lambda: GraphSAGE(FEATURES, HIDDEN, 2, CLASSES),
    "GIN": lambda: GIN(FEATURES, HIDDEN, 2, CLASSES),
    "SGC": sgc,
    "GAT": lambda: GAT(FEATURES, HIDDEN, 2, CLASSES, heads=2),
    "TAG": tag,
}


class OneOf:
    """A process of several, whose gradients the test adds up itself."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def share(self, seeds: Tensor) -> Tensor:
        return seeds[self.rank :: self.size]

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        pass

    def gather_rows(self, rows: Tensor) -> Tensor:
        return rows

    def barrier(self) -> None:
        pass


def training_on(model: BufferedGNN, data: Data, ranks: Any = None, **settings: Any) -> BatchTraining:
    config = FitConfig(**{"batch": BatchConfig(), **settings})
    return BatchTraining(model, GraphSource(Graph.of(data)), config, "train_mask", "val_mask", None, None, None, ranks)


def full_gradients(model: BufferedGNN, data: Data, config: FitConfig, step: int) -> tuple[list[Tensor], Tensor]:
    """Of the whole graph at once, with the perturbed graph that a batch's step would have."""

    def perturb(graph: Graph, generator: torch.Generator) -> Data:
        draw = DropEdge(config.seed, step, config.drop_edge, config.directions)
        return graph.subgraph(draw.kept(graph.source, graph.target, slice(None)))

    training = Training(model, Graph.of(data), config, "train_mask", "val_mask", None, perturb)
    with training.passes.ready():
        clean = training.passes.run(training.passes.whole)
        perturbed = training.passes.run(training.perturbed(training.generator))
    terms = training.loss(training.outputs(clean, perturbed, training.supervision.train))
    gradients = training._gradients(terms.bias + config.strength * terms.robust)
    return list(gradients), torch.stack([terms.bias, terms.robust]).detach().double()


def near(found: list[Tensor], expected: list[Tensor], slack: float) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=slack, atol=slack * max(1.0, other.abs().max().item()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MODELS)
def test_all_nodes_with_all_neighbours_are_the_full_batch(name: str, dtype: torch.dtype) -> None:
    slack = 1e-5 if dtype == torch.float32 else 1e-10
    for directed, directions in [(False, "together"), (True, "independent")]:
        data = community_graph(directed=directed)
        data.x = data.x.to(dtype)
        model = shake(aggbuffer.attach(seeded(MODELS[name]).to(dtype).eval(), data))
        config = FitConfig(drop_edge=0.4, strength=0.7, seed=3, directions=directions, batch=BatchConfig())
        training = training_on(model, data, drop_edge=0.4, strength=0.7, seed=3, directions=directions)
        everyone = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(0))
        gradients, terms = training.gradients(training._make(everyone, 5), 5)
        full, full_terms = full_gradients(model, data, config, 5)
        near([terms], [full_terms], slack)
        near(gradients, full, slack)
        assert all(bool(g.any()) for g in gradients)


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("loops", BufferConfig()),
        ("weights", BufferConfig(weighted_degree=True)),
        ("weights", BufferConfig()),
        ("csr", BufferConfig(block="agg")),
        ("plain", BufferConfig(block="agg", bias=True)),
        ("zeros", BufferConfig()),
    ],
)
def test_other_graphs_and_blocks(kind: str, config: BufferConfig) -> None:
    """Self-loops, edge weights, sparse adjacencies, sparse features."""
    data = small_graph(loops=kind == "loops", weights=kind == "weights", directed=kind == "loops")
    mask = {key: data[key] for key in ("y", "train_mask", "val_mask")}
    data = as_csr(data) if kind == "csr" else data
    if kind == "zeros":
        data.x = data.x * (data.x > 1)
    data.update(mask)
    gnn = seeded(lambda: GCN(FEATURES, HIDDEN, 2, 4)).eval()
    model = shake(aggbuffer.attach(gnn, data, config))
    training = training_on(model, data, drop_edge=0.4)
    assert training._is_sparse == (kind == "zeros")
    gradients, _ = training.gradients(training._make(torch.arange(14), 1), 1)
    near(gradients, full_gradients(model, data, training.config, 1)[0], 1e-5)


@pytest.mark.parametrize("fanout", [None, 2])
@pytest.mark.parametrize("name", ["GCN", "SAGE", "GIN", "SGC", "GAT"])
def test_dividing_seeds_changes_nothing(name: str, fanout: int | None) -> None:
    """The same samples, perturbation and dropout for a node, on whichever process and in whatever company."""
    data = community_graph()
    data.x = data.x.double()
    model = shake(aggbuffer.attach(seeded(MODELS[name]).double().eval(), data))
    loops = "redrawn" if name in ("GCN", "SGC") else "kept"
    settings = {"batch": BatchConfig(fanout=fanout), "dropout": 0.5, "drop_edge": 0.4, "self_loops": loops}
    seeds = torch.randperm(90, generator=torch.Generator().manual_seed(1))[:40]
    totals: list[tuple[list[Tensor], Tensor]] = []
    for size in (1, 2, 4):
        parts = []
        for rank in range(size):
            training = training_on(model, data, OneOf(rank, 1), **settings)
            parts.append(training.gradients(training._make(OneOf(rank, size).share(seeds), 7), 7))
        totals.append(
            ([torch.stack(p).sum(0) for p in zip(*(g for g, _ in parts), strict=True)], sum(t for _, t in parts))
        )
    for gradients, terms in totals[1:]:
        near(gradients, totals[0][0], 1e-10)
        near([terms], [totals[0][1]], 1e-10)


@pytest.mark.parametrize("loss", get_args(Loss))
def test_an_epoch_estimates_the_terms_of_the_whole_graph(loss: Loss) -> None:
    """With all neighbours and one perturbation, the mean over an epoch's batches is the full batch, exactly."""
    data = community_graph()
    data.x = data.x.double()
    model = shake(aggbuffer.attach(seeded(MODELS["GCN"]).double().eval(), data))
    training = training_on(model, data, batch=BatchConfig(seeds=17), loss=loss)
    steps = list(training.schedule.epoch(0))
    assert len(steps) == 6
    assert torch.equal(torch.cat(steps).sort().values, torch.arange(90))
    counts = [int(data.train_mask[seeds].sum()) for seeds in steps]
    assert max(counts) - min(counts) <= 1
    terms = torch.stack([training.gradients(training._make(seeds, 3), 3)[1] for seeds in steps]).mean(0)
    near([terms], [full_gradients(model, data, training.config, 3)[1]], 1e-10)


def test_sampled_aggregations_are_unbiased() -> None:
    """Over many samples, what a GCN without activation says of a node tends to what it says of the whole graph."""
    data = community_graph()
    data.x = data.x.double()
    gnn = seeded(lambda: GCN(FEATURES, HIDDEN, 1, CLASSES)).double().eval()
    model = shake(aggbuffer.attach(gnn, data))
    training = training_on(model, data, batch=BatchConfig(fanout=2))

    seeds = torch.arange(0, 90, 7)
    said = []
    with torch.no_grad():
        for step in range(600):
            passes = BatchPasses(model, training._make(seeds, step), fast=True)
            with passes.ready():
                said.append(passes.of_seeds(passes.whole))
        expected = model(data.x, data.edge_index)[seeds]
    apart = torch.stack(said).mean(0) - expected
    error = torch.stack(said).std(0) / 600**0.5
    assert bool((apart.abs() < 4.5 * error + 1e-9).all())


class Normalising(nn.Module):
    """Two layers that divide by the degrees of sources, which only a look at their own in-edges tells."""

    def __init__(self, build: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.first, self.convs, self.last = (
            nn.Linear(FEATURES, HIDDEN),
            nn.ModuleList([build(), build()]),
            nn.Linear(HIDDEN, CLASSES),
        )

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.first(x)
        for conv in self.convs:
            h = conv(h, edge_index).relu()
        return self.last(h)


@pytest.mark.parametrize(
    ("build", "weighted"),
    [
        (lambda: GCN(FEATURES, HIDDEN, 2, CLASSES), True),
        (lambda: Sequential("x, e, w", [(SGConv(FEATURES, CLASSES, K=2), "x, e, w -> x")]), True),
        (lambda: Normalising(lambda: ARMAConv(HIDDEN, HIDDEN)), False),
        (lambda: Normalising(LGConv), False),
        (lambda: Normalising(lambda: GCNConv(HIDDEN, HIDDEN, improved=True)), False),
    ],
)
def test_a_few_seeds_get_the_answers_of_the_whole_graph(build: Callable[[], nn.Module], weighted: bool) -> None:
    """Whatever a layer counts by itself, a batch with all neighbours holds what it counts."""
    data = community_graph()
    data.x = data.x.double()
    if weighted:
        data.edge_weight = torch.rand(data.num_edges, generator=torch.Generator().manual_seed(0)).double() + 0.5
    call = None
    if weighted:
        call = lambda model, data: model(data.x, data.edge_index, data.edge_weight)  # noqa: E731
    model = shake(aggbuffer.attach(seeded(build).double().eval(), data, forward=call))
    training, seeds, graph = training_on(model, data, drop_edge=0.4), torch.tensor([3, 40, 17]), Graph.of(data)
    passes, draw = BatchPasses(model, training._make(seeds, 1), fast=training.is_fast), training.draw(1)
    with passes.ready(), torch.no_grad():
        found = [passes.of_seeds(passes.whole), passes.of_seeds(passes.perturbed(draw, 0.4))]
    plain = PlainPasses(model, graph)
    with torch.no_grad():
        kept = draw.kept(graph.source, graph.target, slice(None))
        expected = [plain.run(plain.whole), plain.run(plain.only(kept, "together"))]
    near(found, [logits[seeds] for logits in expected], 1e-10)
