"""The theorem's constants against dense matrices, and what a diagnosis says and leaves behind."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    APPNP,
    GCN,
    GIN,
    MLP,
    ChebConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GENConv,
    GINConv,
    GINEConv,
    GraphConv,
    LEConv,
    SAGEConv,
    SGConv,
    TAGConv,
    TransformerConv,
)

import aggbuffer as ab
from aggbuffer.diagnose import KEEP, LIKELY, POINTS_PER_FLIP, UNLIKELY
from aggbuffer.discrepancy import LayerDiscrepancy
from aggbuffer.graph import Graph
from aggbuffer.perturb import drop_edge
from aggbuffer.spectral import operator_norm, spectral_norm
from benchmarks import calibrate_diagnosis as calibration
from conftest import CLASSES, FEATURES, Footprint, answer, as_csr, seeded, shake, small_graph

SEED = 3


class OneLayer(nn.Module):
    """A convolution and nothing else, so that its input is ``data.x``."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        extra = () if edge_weight is None else (edge_weight,)
        return self.conv(x, edge_index, *extra)


class Hidden(nn.Module):
    """Two layers of one kind with ReLU between them."""

    def __init__(self, make: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        self.first, self.second = make(FEATURES, 8), make(8, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        extra = () if edge_attr is None else (edge_attr,)
        return self.second(self.first(x, edge_index, *extra).relu(), edge_index, *extra)


def only_layer(conv: nn.Module, data: Data, **options: Any) -> LayerDiscrepancy:
    (layer,) = ab.diagnose(OneLayer(conv), data, repeats=1, seed=SEED, **options).layers
    return layer


def dropped(data: Data, share: float = 0.5) -> Data:
    """The graph that the first draw of ``diagnose(seed=SEED)`` measures on."""
    return drop_edge(Graph.of(data), share, torch.Generator().manual_seed(SEED))


def dense(data: Data) -> np.ndarray:
    """A, rows are targets."""
    matrix = np.zeros((data.num_nodes, data.num_nodes))
    source, target = data.edge_index.numpy()
    matrix[target, source] = 1 if data.get("edge_weight") is None else data.edge_weight.numpy()
    return matrix


def symmetric(matrix: np.ndarray) -> np.ndarray:
    looped = matrix + np.diag(np.where(np.diag(matrix) == 0, 1.0, 0.0))
    root = looped.sum(1) ** -0.5
    return root[:, None] * looped * root[None, :]


def mean(matrix: np.ndarray) -> np.ndarray:
    return matrix / np.maximum(matrix.sum(1, keepdims=True), 1)


def norm(matrix: Any) -> float:
    return float(np.linalg.norm(np.asarray(matrix, dtype=np.float64), 2))


def weight_norm(linear: nn.Module) -> float:
    return norm(linear.weight.detach().numpy())


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_gcn_constants_are_the_theorems(seed: int, loops: bool, weights: bool) -> None:
    data = small_graph(seed, loops=loops, weights=weights)
    conv = seeded(lambda: GCNConv(FEATURES, 5), seed)
    layer = only_layer(conv, data)
    one, two = symmetric(dense(data)), symmetric(dense(dropped(data)))
    assert layer.basis == "theorem"
    assert layer.c1 == pytest.approx(weight_norm(conv.lin), rel=1e-4)
    assert layer.c1_strict == pytest.approx(layer.c1 * norm(one), rel=1e-3)
    if not weights:
        assert norm(one) == pytest.approx(1)  # as the theorem takes it
    assert layer.c2 == pytest.approx(layer.c1 * data.num_nodes * norm(one - two), rel=1e-3)
    moved = (one - two) @ data.x.numpy() @ conv.lin.weight.detach().numpy().T
    assert layer.structural == pytest.approx(norm(moved), rel=1e-3)
    assert layer.input == 0
    assert layer.output == pytest.approx(layer.structural)
    assert layer.input_norm == pytest.approx(norm(data.x), rel=1e-4)


def test_sgc_takes_the_powers_of_the_adjacency() -> None:
    data = small_graph(1)
    conv = seeded(lambda: SGConv(FEATURES, 5, K=3))
    layer = only_layer(conv, data)
    powers = [np.linalg.matrix_power(symmetric(dense(graph)), 3) for graph in (data, dropped(data))]
    assert layer.c1 == pytest.approx(weight_norm(conv.lin), rel=1e-4)
    assert layer.c2 == pytest.approx(layer.c1 * data.num_nodes * norm(powers[0] - powers[1]), rel=1e-3)


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_sage_constants_are_the_appendixs(flow: str) -> None:
    data = small_graph(2, directed=True)
    conv = seeded(lambda: SAGEConv(FEATURES, 5, flow=flow))
    layer = only_layer(conv, data)
    adjacencies = [dense(graph) if flow == "source_to_target" else dense(graph).T for graph in (data, dropped(data))]
    one, two = map(mean, adjacencies)
    assert layer.c1 == pytest.approx(weight_norm(conv.lin_l) + weight_norm(conv.lin_r), rel=1e-4)
    assert layer.c1_strict == pytest.approx(weight_norm(conv.lin_l) * norm(one) + weight_norm(conv.lin_r), rel=1e-3)
    assert layer.c2 == pytest.approx(data.num_nodes * weight_norm(conv.lin_l) * norm(one - two), rel=1e-3)


def test_gin_constants_are_the_appendixs() -> None:
    data = small_graph(3)
    conv = seeded(lambda: GINConv(nn.Sequential(nn.Linear(FEATURES, 7), nn.ReLU(), nn.Linear(7, 5)), eps=0.3))
    layer = only_layer(conv, data)
    one, two = dense(data), dense(dropped(data))
    inner = weight_norm(conv.nn[0]) * weight_norm(conv.nn[2])
    assert layer.c1 == pytest.approx(inner * (norm(one) + 1.3), rel=1e-3)
    assert layer.c2 == pytest.approx(inner * data.num_nodes * norm(one - two), rel=1e-3)


def test_gin_knows_batch_norm_and_measures_what_it_does_not_know() -> None:
    data = small_graph(3)
    known = seeded(lambda: GINConv(MLP([FEATURES, 7, 5], norm="batch_norm")))
    with torch.no_grad():
        known.nn.norms[0].module.weight.fill_(2.0)
    product = math.prod(weight_norm(lin) for lin in known.nn.lins)
    scale = 2 / math.sqrt(1 + known.nn.norms[0].module.eps)
    assert only_layer(known, data).c1 == pytest.approx(product * scale * (norm(dense(data)) + 1), rel=1e-3)
    unknown = seeded(lambda: GINConv(MLP([FEATURES, 7, 5], norm="layer_norm")))
    assert only_layer(unknown, data).basis == "measured"


@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize("heads", [1, 3])
def test_gat_constants_use_the_attention_of_each_graph(heads: int, concat: bool) -> None:
    data = small_graph(4)
    conv = seeded(lambda: GATConv(FEATURES, 5, heads=heads, concat=concat)).eval()

    def attention(graph: Data) -> np.ndarray:
        _, (ends, alpha) = conv(graph.x, graph.edge_index, return_attention_weights=True)
        matrix = np.zeros((heads, data.num_nodes, data.num_nodes))
        matrix[:, ends[1], ends[0]] = alpha.detach().numpy().T
        return matrix

    def combine(values: list[float]) -> float:
        return math.hypot(*values) if concat else sum(values) / heads

    weights = [norm(part) for part in conv.lin.weight.detach().numpy().reshape(heads, 5, FEATURES)]
    changes = [norm(matrix) for matrix in attention(data) - attention(dropped(data))]
    layer = only_layer(conv, data)
    assert layer.c1 == pytest.approx(combine(weights), rel=1e-4)
    expected = combine([w * change for w, change in zip(weights, changes, strict=True)])
    assert layer.c2 == pytest.approx(data.num_nodes * expected, rel=1e-3)


def test_an_unnormalised_gcn_passes_on_the_norm_of_its_adjacency() -> None:
    data = small_graph(5, weights=True)
    conv = seeded(lambda: GCNConv(FEATURES, 5, normalize=False))
    layer = only_layer(conv, data)
    assert layer.c1 == pytest.approx(weight_norm(conv.lin) * norm(dense(data)), rel=1e-3)


@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
@pytest.mark.parametrize(
    "make",
    [
        GCNConv,
        SAGEConv,
        lambda i, o: SGConv(i, o, K=2),
        lambda i, o: GATConv(i, o // 2, heads=2),
        lambda i, o: GINConv(MLP([i, 8, o], norm=None)),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_the_theorems_inequality_holds(seed: int, make: Callable[[int, int], nn.Module], share: float) -> None:
    data = small_graph(seed, nodes=20, edges=40)
    for layer in ab.diagnose(seeded(lambda: Hidden(make), seed), data, drop_edge=share, seed=seed).layers:
        assert layer.basis == "theorem"
        assert layer.input_norm <= data.num_nodes  # the theorem's assumption
        assert layer.output <= layer.bound * (1 + 1e-5)
        assert layer.structural <= layer.c2 * (1 + 1e-5)


def test_a_star_shows_why_c1_strict_is_there() -> None:
    leaves = torch.arange(1, 26)
    ends = torch.stack([torch.zeros_like(leaves), leaves])
    data = Data(x=torch.randn(26, FEATURES), edge_index=torch.cat([ends, ends.flip(0)], 1))
    layer = only_layer(SAGEConv(FEATURES, 5, root_weight=False), data)
    assert layer.c1_strict == pytest.approx(5 * layer.c1, rel=1e-3)  # ||D^-1 A||_2 = sqrt(leaves), not 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_measured_slope_of_a_linear_layer_is_its_norm(dtype: torch.dtype) -> None:
    data = small_graph(6)
    data.x = data.x.to(dtype)
    conv = seeded(lambda: GraphConv(FEATURES, 5)).to(dtype)
    layer = only_layer(conv, data)
    own, others = conv.lin_root.weight.detach().numpy(), conv.lin_rel.weight.detach().numpy()
    jacobian = np.kron(np.eye(data.num_nodes), own) + np.kron(dense(data), others)
    assert layer.basis == "measured"
    assert layer.c1 == pytest.approx(norm(jacobian), rel=1e-2)
    assert layer.c2 == layer.structural > 0


CONVOLUTIONS: dict[str, Callable[[int, int], nn.Module]] = {
    "gcn": GCNConv,
    "sage": SAGEConv,
    "sage-max": lambda i, o: SAGEConv(i, o, aggr="max"),
    "gat": lambda i, o: GATConv(i, o // 2, heads=2),
    "gat-mean": lambda i, o: GATConv(i, o, heads=2, concat=False, residual=True),
    "gatv2": GATv2Conv,
    "gin": lambda i, o: GINConv(nn.Linear(i, o)),
    "gine": lambda i, o: GINEConv(nn.Linear(i, o), edge_dim=2),
    "sgc": lambda i, o: SGConv(i, o, K=2),
    "graph": GraphConv,
    "tag": TAGConv,
    "cheb": lambda i, o: ChebConv(i, o, K=3),
    "appnp": lambda i, o: nn.Sequential(),
    "transformer": TransformerConv,
    "gen": GENConv,
    "le": LEConv,
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_every_convolution_runs(name: str) -> None:
    gnn = seeded(lambda: OneLayer(APPNP(3, 0.1)) if name == "appnp" else Hidden(CONVOLUTIONS[name]))
    data = small_graph(attributes=2 if name == "gine" else 0)
    before = Footprint(gnn)
    diagnosis = ab.diagnose(gnn, data, repeats=1)
    before.check()
    theorem = name in ("gcn", "sage", "gat", "gat-mean", "gin", "sgc")
    for layer in diagnosis.layers:
        assert layer.basis == ("theorem" if theorem else "measured")
        assert layer.c1 > 0
        assert math.isfinite(layer.bound)
    json.dumps(diagnosis.to_dict(), allow_nan=False)


@pytest.mark.parametrize("name", ["gcn", "sage", "gat", "gin", "sgc", "graph", "gatv2", "sage-max"])
def test_csr_input_gives_the_same(name: str) -> None:
    gnn = seeded(lambda: Hidden(CONVOLUTIONS[name]))
    data = small_graph()
    csr = as_csr(data)
    order = torch.stack([csr.adj_t.col_indices(), torch.repeat_interleave(csr.adj_t.crow_indices().diff())])
    sorted_data = Data(x=data.x, edge_index=order)
    for one, two in zip(ab.diagnose(gnn, sorted_data).layers, ab.diagnose(gnn, csr).layers, strict=True):
        for field in ("c1", "c1_strict", "c2", "input", "output", "structural"):
            assert getattr(one, field) == pytest.approx(getattr(two, field), rel=2e-2, abs=1e-5)


def test_flips_are_counted_as_defined() -> None:
    data = small_graph(7, nodes=60, edges=150)
    gnn = seeded(lambda: Hidden(GCNConv))
    flips = ab.diagnose(gnn, data).flips
    assert tuple(flips) == KEEP
    assert flips[1.0] == type(flips[1.0])(0, 0, 0, 0)
    empty = data.edge_index[:, :0]
    changed = (answer(gnn, data.x, data.edge_index).argmax(-1) != answer(gnn, data.x, empty).argmax(-1)).float()
    assert flips[0.0].overall == pytest.approx(changed.mean().item()) != 0
    none = flips[0.0]
    assert (none.low + none.middle + none.high) / 3 == pytest.approx(none.overall)


def edgeless(gnn: nn.Module) -> nn.Module:
    class Deaf(nn.Module):
        """Asks its features, and hears its neighbours as a whisper."""

        def __init__(self) -> None:
            super().__init__()
            self.own, self.gnn = nn.Linear(FEATURES, CLASSES), gnn

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.own(x) + 1e-6 * self.gnn(x, edge_index)

    return seeded(Deaf)


def test_the_verdict_tells_a_fragile_model_from_one_that_ignores_edges() -> None:
    data = small_graph(8, nodes=90, edges=200)
    gnn = seeded(lambda: Hidden(lambda i, o: SAGEConv(i, o, root_weight=False, bias=False)))
    fragile, deaf = ab.diagnose(gnn, data), ab.diagnose(edgeless(gnn), data)
    assert fragile.verdict == "likely to pay"
    assert deaf.verdict == "unlikely to pay"
    assert deaf.expected_gain[0.0] == 0
    assert "0.0 % of the predictions change" in deaf.in_words()
    assert f"{fragile.flips[0.5].overall:.1%}"[:-1] in fragile.in_words()
    assert UNLIKELY < LIKELY
    assert set(POINTS_PER_FLIP) == set(KEEP)
    for text in (fragile.to_markdown(), str(fragile), fragile._repr_html_()):
        assert fragile.verdict in text
        assert "SAGEConv" in text


def test_the_points_a_flip_is_worth_are_those_of_the_committed_calibration() -> None:
    rows = calibration.rows()
    assert [row.run for row in rows] == list(calibration.RUNS)
    assert calibration.points_per_flip(rows) == POINTS_PER_FLIP


def test_the_words_on_the_calibrations_error_are_those_of_the_committed_calibration() -> None:
    data = small_graph(8, nodes=90, edges=200)
    words = ab.diagnose(seeded(lambda: Hidden(GCNConv)), data, repeats=1).in_words()
    rows = calibration.rows()
    left_out = {share: np.mean(calibration.left_out_errors(rows, share)) for share in KEEP}
    rounded = {share: round(error) for share, error in left_out.items()}
    assert rounded == {1.0: 2, 0.75: 2, 0.5: 2, 0.25: 2, 0.0: 3}
    assert "off by 2 points on average (3 with no edges)" in words
    told = [(row, share, calibration.told(row, share)) for row in rows if not row.run.calibrates for share in KEEP]
    assert f"elsewhere by up to {max(abs(points - row.gain[share]) for row, share, points in told):.0f}," in words
    wrong = [row for row in rows if row.before[1.0] < 50]
    assert {row.run.graph for row in wrong} == {"Chameleon"}
    assert all(calibration.told(row, 0.5) > row.gain[0.5] + 5 for row in wrong)
    calibrating = [row for row in rows if row.run.calibrates]
    assert all(calibration.told(row, 0.5) > LIKELY and row.gain[0.5] > 0.9 for row in calibrating)


def test_a_buffered_model_is_measured_with_its_buffers(graph: Data) -> None:
    gnn = seeded(lambda: GCN(FEATURES, 8, 2, CLASSES))
    plain = ab.diagnose(gnn, graph)
    model = ab.attach(gnn, graph)
    same = ab.diagnose(model, graph)
    assert same.layers == plain.layers
    assert same.flips == plain.flips
    before = Footprint(shake(model, size=1.0))
    moved = ab.diagnose(model, graph)
    before.check()
    assert moved.buffered
    assert "Another buffer" in moved.in_words()
    assert [layer.structural for layer in moved.layers] != [layer.structural for layer in plain.layers]
    # The buffer's own term: (D + I)^-1 X W at the first layer, on both graphs.
    two = drop_edge(Graph.of(graph), 0.5, torch.Generator().manual_seed(0))
    conv, term = gnn.convs[0], graph.x @ model.blocks[0].weight
    inverse = [1 / (Graph.of(one).degree + 1).unsqueeze(-1) for one in (graph, two)]
    change = answer(conv, graph.x, graph.edge_index) - answer(conv, graph.x, two.edge_index)
    expected = norm((change + (inverse[0] - inverse[1]) * term).detach())
    one_draw = ab.diagnose(model, graph, repeats=1).layers[0]
    assert one_draw.structural == pytest.approx(expected, rel=1e-4)


def test_same_seed_same_diagnosis_and_the_global_random_state_stays(graph: Data) -> None:
    gnn = seeded(lambda: GCN(FEATURES, 8, 2, CLASSES, dropout=0.5)).train()
    before, state = Footprint(gnn), torch.get_rng_state()
    assert ab.diagnose(gnn, graph, seed=1) == ab.diagnose(gnn, graph, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    before.check()


@pytest.mark.parametrize("fail_at", [1, 2, 14, 15])
def test_a_model_that_fails_midway_is_left_as_it_was(graph: Data, fail_at: int) -> None:
    class Failing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gnn, self.calls = GCN(FEATURES, 8, 2, CLASSES), 0

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            self.calls += 1
            out = self.gnn(x, edge_index)
            if self.calls == fail_at:
                raise RuntimeError("no more")
            return out

    gnn = seeded(Failing).train()
    before, state = Footprint(gnn), torch.get_rng_state()
    with pytest.raises(ab.AggBufferError, match="no more"):
        ab.diagnose(gnn, graph)
    before.check()
    assert torch.equal(torch.get_rng_state(), state)


def test_models_called_their_own_way(graph: Data) -> None:
    class TakesData(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = GCNConv(FEATURES, 8), GCNConv(8, CLASSES)

        def forward(self, data: Data) -> tuple[Tensor, None]:
            x = self.first(x=data.x, edge_index=data.edge_index).relu()
            return self.second(x=x, edge_index=data.edge_index), None

    plain = seeded(lambda: Hidden(GCNConv))
    own = seeded(TakesData)
    diagnosis = ab.diagnose(own, graph, forward=lambda model, data: model(data)[0])
    assert diagnosis.layers == ab.diagnose(plain, graph).layers
    assert ab.diagnose(plain, (graph.x, graph.edge_index)).layers == diagnosis.layers


def test_several_labels_and_regression() -> None:
    data = small_graph(9)
    gnn = seeded(lambda: GIN(FEATURES, 8, 2, 3))
    data.y = torch.randint(2, (data.num_nodes, 3)).float()
    several = ab.diagnose(gnn, data)
    assert several.task == "multilabel"
    data.y = torch.randn(data.num_nodes, 3)
    values = ab.diagnose(gnn, data)
    assert values.task == "regression"
    assert values.expected_gain == {}
    assert values.flips[1.0].overall == 0
    full, none = answer(gnn, data.x, data.edge_index), answer(gnn, data.x, data.edge_index[:, :0])
    relative = ((full - none).square().mean() / (full - full.mean(0)).square().mean()).sqrt().item()
    assert values.flips[0.0].overall == pytest.approx(relative, rel=1e-5)
    assert "outputs move" in values.in_words()
    json.dumps(values.to_dict(), allow_nan=False)


def test_bad_input_is_refused_in_a_sentence(graph: Data) -> None:
    gnn = seeded(lambda: GCN(FEATURES, 8, 2, CLASSES))
    before = Footprint(gnn)
    broken = graph.clone()
    broken.x[0, 0] = math.nan
    narrow = graph.clone()
    narrow.x = narrow.x[:, :2]
    cases: list[tuple[Any, Any, dict[str, Any], str]] = [
        ("no model", graph, {}, "expected a torch.nn.Module"),
        (nn.Linear(FEATURES, 2), graph, {"forward": lambda m, d: m(d.x)}, "No message-passing layer"),
        (gnn, broken, {}, "NaN"),
        (gnn, narrow, {}, "features per node"),
        (gnn, "no graph", {}, "expected a torch_geometric.data.Data"),
        (gnn, graph, {"drop_edge": 1.5}, "drop_edge must be in"),
        (gnn, graph, {"repeats": 0}, "repeats must be"),
        (gnn, graph, {"seed": -1}, "seed must be"),
        (gnn, graph, {"task": "ranking"}, "task must be"),
        (GCN(FEATURES, 8, 2, 1), Data(x=graph.x, edge_index=graph.edge_index), {}, "task='multilabel'"),
        (gnn, graph, {"forward": lambda m, d: (m(d.x, d.edge_index), 0)}, "The model returned a tuple"),
        (GCN(FEATURES, 8, 2, CLASSES, cached=True), graph, {}, "cached=False"),
    ]
    for model, data, options, message in cases:
        with pytest.raises(ab.AggBufferError, match=message.replace("[", r"\[")):
            ab.diagnose(model, data, **options)
    before.check()


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (7, 7), (600, 700)])
def test_spectral_norms_agree_with_numpy(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    assert spectral_norm(matrix) == pytest.approx(norm(matrix), rel=1e-3)
    assert spectral_norm(matrix * 1e25) == pytest.approx(1e25 * norm(matrix), rel=1e-3)
    assert spectral_norm(torch.zeros(shape)) == 0
    iterated = operator_norm(lambda v: matrix @ v, lambda u: matrix.t() @ u, matrix[0])
    assert norm(matrix) * (1 - 1e-3) <= iterated <= norm(matrix) * (1 + 1e-5)
