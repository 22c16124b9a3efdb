"""The fast path computes what the plain path computes, for whatever it is chosen."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GIN, GCNConv, GraphConv, GraphSAGE, SAGEConv, Sequential, SGConv
from torch_geometric.utils import add_remaining_self_loops

import aggbuffer as ab
from aggbuffer.fast.features import Features
from aggbuffer.fast.passes import FastPasses, can_run
from aggbuffer.fast.rates import sparse_below
from aggbuffer.fast.runner import fast_forms
from aggbuffer.fast.views import Patterns, View
from aggbuffer.graph import Graph
from aggbuffer.passes import PlainPasses, choose_passes
from aggbuffer.perturb import keep_mask, redrawn_loops
from conftest import as_csr, seeded, small_graph

F_IN, CLASSES = 24, 4


def sparse_featured(data: Data) -> Data:
    """The same graph with one feature in ten left."""
    kept = torch.rand(data.x.shape, generator=torch.Generator().manual_seed(1)) < 0.1
    data.x = data.x * kept
    return data


def graph(seed: int = 0, *, directed: bool = False, loops: bool = False, sparse: bool = True) -> Data:
    data = small_graph(seed, nodes=40, edges=90, features=F_IN, directed=directed, loops=loops)
    return sparse_featured(data) if sparse else data


class NamesInput(nn.Module):
    """Calls a linear map by the name of its argument."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.residual = GCNConv(F_IN, CLASSES), nn.Linear(F_IN, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index) + self.residual(input=x)


class ResidualGCN(nn.Module):
    """A hand-written model with residual connections, LayerNorm and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([GCNConv(F_IN, 16), GCNConv(16, 16)])
        self.residual, self.norm, self.head = nn.Linear(F_IN, 16), nn.LayerNorm(16), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = F.relu(self.norm(self.convs[0](x, edge_index) + self.residual(x)))
        return self.head(F.dropout(F.relu(self.convs[1](h, edge_index) + h), 0.5, self.training))


class Parallel(nn.Module):
    """Two layers read the same representation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.left, self.right = GCNConv(F_IN, 8), GCNConv(8, CLASSES), SAGEConv(8, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = F.relu(self.first(x, edge_index))
        return self.left(h, edge_index) + self.right(h, edge_index)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "gcn": lambda: GCN(F_IN, 8, 2, CLASSES),
    "gcn, wider inside": lambda: GCN(F_IN, 64, 3, CLASSES, norm="BatchNorm"),
    "gcn, wider at the end": lambda: GCN(F_IN, 8, 2, 20),
    "residual": ResidualGCN,
    "parallel": Parallel,
    "input by name": NamesInput,
    "sage": lambda: GraphSAGE(F_IN, 8, 3, CLASSES),
    "sage, wider at the end": lambda: GraphSAGE(F_IN, 8, 2, 20),
    "sage without root": lambda: Sequential(
        "x, edge_index", [(SAGEConv(F_IN, CLASSES, root_weight=False), "x, edge_index -> x")]
    ),
    "gin": lambda: GIN(F_IN, 8, 2, CLASSES),
    "sgc": lambda: Sequential("x, edge_index", [(SGConv(F_IN, CLASSES, K=3), "x, edge_index -> x")]),
    "one hop": lambda: Sequential("x, edge_index", [(SGConv(F_IN, CLASSES, K=1, bias=False), "x, edge_index -> x")]),
    "gat, which has no fast form": lambda: GAT(F_IN, 8, 2, CLASSES),
}


def moved(model: ab.BufferedGNN, seed: int = 0) -> ab.BufferedGNN:
    """The model with buffers that are not zero."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.buffer_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw, dtype=parameter.dtype) * 0.3)
    return model


def step(passes: PlainPasses | FastPasses, model: ab.BufferedGNN, mask: Tensor, dropout: float) -> list[Tensor]:
    """Clean and perturbed logits and the gradients of a function of both."""
    draw = torch.Generator().manual_seed(3)
    with passes.ready(), model.dropping(dropout, draw):
        clean, perturbed = passes.run(passes.whole), passes.run(passes.only(mask, "together"))
        gradients = torch.autograd.grad((clean.sin() + perturbed.cos()).sum(), model.buffer_parameters())
    return [clean, perturbed, *gradients]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_outputs_and_gradients_agree(name: str, dtype: torch.dtype) -> None:
    tolerance = 1e-5 if dtype is torch.float32 else 1e-10
    gnn = seeded(MODELS[name]).to(dtype).eval()
    for seed, directed, loops, sparse in [(0, False, False, True), (1, True, True, True), (2, False, True, False)]:
        data = graph(seed, directed=directed, loops=loops, sparse=sparse)
        data.x = data.x.to(dtype)
        checked = Graph.of(data)
        for config in (ab.BufferConfig(), ab.BufferConfig(block="jknet", bias=True), ab.BufferConfig(block="single")):
            model = moved(ab.attach(gnn, data, config))
            mask = keep_mask(checked, 0.4, torch.Generator().manual_seed(seed))
            plain = step(PlainPasses(model, checked), model, mask, dropout=0.5)
            fast = step(FastPasses(model, checked), model, mask, dropout=0.5)
            for expected, found in zip(plain, fast, strict=True):
                scale = max(1.0, expected.abs().max().item())  # sums round relative to their largest entries
                torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance * scale)
            ab.detach(model)


@pytest.mark.parametrize("name", ["gcn", "sgc", "sage", "gin"])
def test_a_whole_fit_agrees(name: str) -> None:
    data = graph()
    gnn = seeded(MODELS[name]).double().eval()
    data.x = data.x.double()
    ends = []
    for accelerate in (False, True):
        model = ab.attach(gnn, data)
        result = ab.fit(model, data, dropout=0.3, max_epochs=15, accelerate=accelerate)
        ends.append((result, [p.detach().clone() for p in model.buffer_parameters()]))
        ab.detach(model)
    (plain, plain_end), (fast, fast_end) = ends
    for a, b in zip(plain.history, fast.history, strict=True):
        assert (a.bias, a.robust, a.val_loss) == pytest.approx((b.bias, b.robust, b.val_loss), abs=1e-9)
    for expected, found in zip(plain_end, fast_end, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def test_the_covered_layers_really_run_fast() -> None:
    """Otherwise everything above would hold for nothing."""
    data = graph()
    for name in ("gcn", "residual", "sage", "gin"):
        assert len(fast_forms(MODELS[name]())) == len(ab.attach(MODELS[name](), data).layers)
    assert not fast_forms(MODELS["gat, which has no fast form"]())
    model = ab.attach(MODELS["gcn"]().eval(), data)
    passes = choose_passes(model, Graph.of(data), accelerate=True)
    assert isinstance(passes, FastPasses)

    def forbidden(*args: object, **kwargs: object) -> Tensor:
        raise AssertionError("the layer's own propagation ran")

    conv = model.base.convs[0]
    conv.propagate = forbidden
    with passes.ready():
        passes.run(passes.whole)
    del conv.propagate


def test_layers_are_as_they_were_afterwards_also_after_an_error() -> None:
    data = graph()
    gnn = MODELS["gcn"]().eval()
    model = ab.attach(gnn, data)

    def fails(record: object) -> None:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        ab.fit(model, data, callbacks=[fails])
    assert all("forward" not in module.__dict__ for module in gnn.modules())
    assert model._accelerator is None


def test_what_the_fast_path_does_not_cover_runs_plainly() -> None:
    data = graph(sparse=False)
    model = ab.attach(MODELS["gcn"]().eval(), as_csr(data))
    assert not can_run(model, Graph.of(as_csr(data)))
    half = MODELS["gcn"]().bfloat16().eval()
    coarse = data.clone()
    coarse.x = coarse.x.bfloat16()
    assert not can_run(ab.attach(half, coarse), Graph.of(coarse))


def test_a_weighted_graph_keeps_its_weights() -> None:
    """A layer that is called with weights runs plainly, and the result is the plain one."""
    data = small_graph(0, nodes=40, edges=90, features=F_IN, weights=True)
    model = moved(ab.attach(MODELS["gcn"]().eval(), data))
    checked = Graph.of(data)
    mask = keep_mask(checked, 0.4, torch.Generator().manual_seed(0))
    plain = step(PlainPasses(model, checked), model, mask, dropout=0.0)
    fast = step(FastPasses(model, checked), model, mask, dropout=0.0)
    for expected, found in zip(plain, fast, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), share=st.sampled_from([0.0, 0.3, 0.7, 1.0]), directed=st.booleans())
def test_a_view_is_the_dense_matrix(seed: int, share: float, directed: bool) -> None:
    checked = Graph.of(small_graph(seed, directed=directed, loops=True))
    count = checked.num_nodes
    mask = keep_mask(checked, share, torch.Generator().manual_seed(seed))
    view = View(checked, Patterns(checked), mask, checked.subgraph(mask), symmetric=False)
    dense = torch.zeros(count, count)
    dense[checked.target[mask], checked.source[mask]] = 1.0
    loops_everywhere = dense.clone().fill_diagonal_(1.0)
    x = torch.randn(count, 3, generator=torch.Generator().manual_seed(seed), requires_grad=True)
    root = loops_everywhere.sum(1).rsqrt()
    expected = {
        ("sum", False): dense,
        ("mean", False): dense / dense.sum(1, keepdim=True).clamp(min=1),
        ("sym", True): root[:, None] * loops_everywhere * root,
    }
    for (norm, loops), matrix in expected.items():
        out = view.propagate(x, norm, loops=loops)
        torch.testing.assert_close(out, matrix @ x)
        (gradient,) = torch.autograd.grad(out.sin().sum(), x)
        torch.testing.assert_close(gradient, torch.autograd.grad((matrix @ x).sin().sum(), x)[0])
    torch.testing.assert_close(view.inverse_degree.squeeze(-1), 1 / loops_everywhere.sum(1))


def test_features_are_multiplied_as_what_they_are() -> None:
    weight = torch.randn(F_IN, 5, requires_grad=True)
    for sparse in (True, False):
        x = graph(sparse=sparse).x
        features = Features(x)
        assert features.is_sparse == ((x != 0).float().mean() < sparse_below())
        assert features.is_sparse == sparse
        torch.testing.assert_close(features @ weight, x @ weight)
        (gradient,) = torch.autograd.grad((features @ weight).sin().sum(), weight)
        torch.testing.assert_close(gradient, torch.autograd.grad((x @ weight).sin().sum(), weight)[0])


class Adapter(nn.Module):
    """A low-rank adapter around a layer's linear map."""

    def __init__(self, linear: nn.Module) -> None:
        super().__init__()
        self.linear, self.weight, self.bias = linear, linear.weight, None
        self.extra = nn.Linear(F_IN, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.extra(x)


def wrapped_linear(gnn: nn.Module) -> None:
    gnn.convs[0].lin = Adapter(gnn.convs[0].lin)


def hooked_linear(gnn: nn.Module) -> None:
    gnn.convs[0].lin.register_forward_hook(lambda module, args, output: output * 2)


def hooked_in_place(gnn: nn.Module) -> None:
    gnn.convs[0].register_forward_hook(lambda module, args, output: output.mul_(1.5))


def hooked_propagation(gnn: nn.Module) -> None:
    gnn.convs[0].register_propagate_forward_hook(lambda module, inputs, output: output * 2)


def hooked_aggregation(gnn: nn.Module) -> None:
    gnn.convs[0].aggr_module.register_forward_hook(lambda module, args, output: output * 2)


def own_message(gnn: nn.Module) -> None:
    message = gnn.convs[0].message
    gnn.convs[0].message = lambda x_j, edge_weight: 2 * message(x_j, edge_weight)


CHANGES = [wrapped_linear, hooked_linear, hooked_in_place, hooked_propagation, hooked_aggregation, own_message]


@pytest.mark.parametrize("change", CHANGES)
def test_what_users_put_around_a_layer_counts(change: Callable[[nn.Module], None]) -> None:
    """None of it may be passed by, whether the conditions on fast layers or the check before training see it."""
    data = graph()
    gnn = GCN(F_IN, 8, 2, CLASSES).eval()
    change(gnn)
    ends = []
    for accelerate in (False, True):
        model = ab.attach(gnn, data)
        ab.fit(model, data, max_epochs=6, accelerate=accelerate)
        ends.append([p.detach().clone() for p in model.buffer_parameters()])
        ab.detach(model)
    for expected, found in zip(*ends, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("change", CHANGES[:2] + CHANGES[3:])
def test_layers_with_something_around_them_run_plainly(change: Callable[[nn.Module], None]) -> None:
    """Seen by the conditions on fast layers alone: on a large graph nothing is checked."""
    data = graph()
    gnn = seeded(MODELS["gcn"]).eval()
    change(gnn)
    model = moved(ab.attach(gnn, data))
    checked = Graph.of(data)
    plain, fast = PlainPasses(model, checked), FastPasses(model, checked)
    with fast.ready():
        found = fast.run(fast.whole)
    torch.testing.assert_close(found, plain.run(plain.whole), rtol=1e-5, atol=1e-5)


def test_a_fit_under_autocast_takes_the_plain_path() -> None:
    data = graph()
    model = ab.attach(seeded(MODELS["gcn"]).eval(), data)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert isinstance(choose_passes(model, Graph.of(data), accelerate=True), PlainPasses)


def test_what_a_hook_holds_is_not_written_to() -> None:
    """GIN's last step is a module of the user's, whose output a hook may keep."""
    data, held = graph(), []
    gnn = seeded(MODELS["gin"]).eval()
    model = moved(ab.attach(gnn, data, ab.BufferConfig(site="output")))
    gnn.convs[1].nn.lins[-1].register_forward_hook(lambda module, args, output: held.append(output))
    passes = FastPasses(model, Graph.of(data))
    with torch.no_grad():
        with passes.ready():
            passes.run(passes.whole)
        model.run(data)
    torch.testing.assert_close(*held, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layer", [GCNConv, SAGEConv, SGConv, GraphConv])
def test_a_reversed_flow_divides_by_its_own_degree(layer: Callable[..., nn.Module]) -> None:
    data = graph(1, directed=True)
    conv = layer(F_IN, CLASSES, flow="target_to_source")
    gnn = Sequential("x, edge_index", [(conv, "x, edge_index -> x")]).double().eval()
    data.x = data.x.double()
    model = moved(ab.attach(gnn, data))
    checked = Graph.of(data)
    mask = keep_mask(checked, 0.4, torch.Generator().manual_seed(0))
    plain = step(PlainPasses(model, checked), model, mask, dropout=0.0)
    fast = step(FastPasses(model, checked), model, mask, dropout=0.0)
    for expected, found in zip(plain, fast, strict=True):
        torch.testing.assert_close(found, expected)


def test_a_bare_layer_is_still_called_by_its_signature() -> None:
    data = small_graph(0, nodes=40, edges=90, features=F_IN, weights=True)
    for build in (SGConv, GCNConv):
        model = ab.attach(seeded(lambda build=build: build(F_IN, CLASSES)).eval(), data)
        assert ab.fit(model, data, max_epochs=2).epochs == 2


def test_callbacks_see_the_model_as_it_is() -> None:
    """A callback may evaluate, copy or save the model."""
    data = graph()
    model = ab.attach(GCN(F_IN, 8, 2, CLASSES).eval(), data)
    seen = []

    def look(record: object) -> None:
        copied = copy.deepcopy(model)
        assert torch.equal(copied(data.x, data.edge_index), model(data.x, data.edge_index))
        seen.append(ab.diagnose(model, data, repeats=1))
        torch.save(model, io.BytesIO())

    ab.fit(model, data, max_epochs=2, callbacks=[look])
    assert len(seen) == 2


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_calls_of_a_fitted_model_agree(name: str, dtype: torch.dtype) -> None:
    """First calls and later ones, with the same graph, with other edges or features, and after the weights changed."""
    tolerance = 1e-5 if dtype is torch.float32 else 1e-10
    data, other = graph(), graph(5)
    for each in (data, other):
        each.x = each.x.to(dtype)
    model = moved(ab.attach(seeded(MODELS[name]).to(dtype).eval(), data))
    model._inference.worth = 0

    def check(x: Tensor, edges: Tensor) -> None:
        with torch.no_grad():
            for found in (model(x, edges), model(x, edge_index=edges)):
                with model.plainly():
                    expected = model(x, edges)
                scale = max(1.0, expected.abs().max().item())
                torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance * scale)

    check(data.x, data.edge_index)
    assert model._inference.agrees
    check(data.x, other.edge_index)
    check(data.x, data.edge_index[:, :50].clone())
    check(other.x, other.edge_index)
    moved(model, seed=1)
    check(other.x, other.edge_index)
    with torch.no_grad():
        other.x.mul_(2)
        next(model.base.parameters()).mul_(1.5)
    check(other.x, other.edge_index)


def test_what_is_kept_for_a_graph_goes_with_it() -> None:
    data = graph()
    model = moved(ab.attach(seeded(MODELS["gcn"]).eval(), data))
    model._inference.worth = 0
    x, edges = data.x.clone(), data.edge_index.clone()
    with torch.no_grad():
        model(x, edges)
    assert model._inference.passes is not None
    assert copy.deepcopy(model)._inference.passes is None
    del x
    assert model._inference.passes is None


def test_a_model_that_writes_into_what_is_kept_is_answered_plainly() -> None:
    data = graph()
    gnn = seeded(MODELS["gcn"]).eval()
    gnn.act = nn.ReLU(inplace=True)
    model = moved(ab.attach(gnn, data))
    model._inference.worth = 0
    with torch.no_grad():
        answers = [model(data.x, data.edge_index) for _ in range(3)]
        with model.plainly():
            expected = model(data.x, data.edge_index)
    assert all(torch.equal(answer, expected) for answer in answers) or model._inference.agrees
    for answer in answers:
        torch.testing.assert_close(answer, expected, rtol=1e-5, atol=1e-5)


def test_an_untouched_model_and_calls_with_gradients_take_the_plain_path() -> None:
    data = graph()
    model = ab.attach(seeded(MODELS["gcn"]).eval(), data)
    model._inference.worth = 0
    with torch.no_grad():
        assert torch.equal(model(data.x, data.edge_index), model.base(data.x, data.edge_index))
        moved(model)
    model(data.x, data.edge_index).sum().backward()
    assert model._inference.passes is None


@pytest.mark.parametrize("name", ["gcn", "residual"])
def test_a_block_that_repeats_the_aggregation_agrees(name: str) -> None:
    data = graph(directed=True, loops=True)
    checked = Graph.of(data)
    config = ab.BufferConfig(block="agg", bias=True)
    model = moved(ab.attach(seeded(MODELS[name]).eval(), data, config))
    mask = keep_mask(checked, 0.4, torch.Generator().manual_seed(0))
    plain = step(PlainPasses(model, checked), model, mask, dropout=0.5)
    fast = step(FastPasses(model, checked), model, mask, dropout=0.5)
    for expected, found in zip(plain, fast, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", [FastPasses, PlainPasses])
@pytest.mark.parametrize("directions", ["together", "independent"])
def test_redrawn_self_loops_are_the_dense_matrix(directions: str, kind: type) -> None:
    """A loop weighs 1 or 2 in the normalisation, in the aggregation and in the buffer's degree."""
    data = graph(loops=True)
    checked = Graph.of(data)
    gnn = Sequential("x, edge_index", [(GCNConv(F_IN, CLASSES), "x, edge_index -> x")]).eval()
    model = moved(ab.attach(gnn, data))
    mask = keep_mask(checked, 0.5, torch.Generator().manual_seed(1), directions=directions)
    loops = redrawn_loops(checked, 0.5, torch.Generator().manual_seed(2))
    assert set(loops.tolist()) == {1.0, 2.0}
    passes = kind(model, checked)
    assert passes.weighs_loops
    with passes.ready():
        found = passes.run(passes.only(mask, directions, loops))
        (gradient,) = torch.autograd.grad(found.sin().sum(), model.buffer_parameters())
    dense = torch.zeros(checked.num_nodes, checked.num_nodes)
    dense[checked.target[mask], checked.source[mask]] = 1.0
    dense = dense.fill_diagonal_(0.0) + torch.diag(loops)
    degree = dense.sum(1)
    conv, (weight,) = gnn[0], model.buffer_parameters()
    normed = degree.rsqrt()[:, None] * dense * degree.rsqrt()
    expected = normed @ (data.x @ conv.lin.weight.t()) + conv.bias + (data.x @ weight) / degree[:, None]
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.sin().sum(), weight)[0])


@pytest.mark.parametrize(
    ("name", "site"), [("gcn", "aggregation"), ("gcn", "output"), ("residual", "aggregation"), ("sgc", "aggregation")]
)
def test_both_paths_weigh_self_loops_alike(name: str, site: str) -> None:
    data = graph(loops=True)
    checked = Graph.of(data)
    model = moved(ab.attach(seeded(MODELS[name]).eval(), data, ab.BufferConfig(site=site)))
    mask = keep_mask(checked, 0.4, torch.Generator().manual_seed(0))
    loops = redrawn_loops(checked, 0.4, torch.Generator().manual_seed(1))
    answers = []
    for passes in (PlainPasses(model, checked), FastPasses(model, checked)):
        with passes.ready(), model.dropping(0.5, torch.Generator().manual_seed(2)):
            logits = passes.run(passes.only(mask, "together", loops))
            answers.append([logits, *torch.autograd.grad(logits.sin().sum(), model.buffer_parameters())])
    for plain, fast in zip(*answers, strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-5, atol=1e-4)


def test_redrawn_self_loops_multiply_the_weights_that_a_graph_gives_its_own() -> None:
    edges = torch.tensor([[0, 1, 1], [1, 0, 1]])
    data = Data(x=torch.eye(2), edge_index=edges, edge_weight=torch.tensor([3.0, 3.0, 0.5]))
    gnn = Sequential("x, edge_index, edge_weight", [(GCNConv(2, 2), "x, edge_index, edge_weight -> x")]).eval()
    model = moved(ab.attach(gnn, data))
    passes = PlainPasses(model, Graph.of(data))
    found = passes.run(passes.only(torch.ones(3, dtype=torch.bool), "together", torch.tensor([2.0, 2.0])))
    dense = torch.tensor([[2.0, 3.0], [3.0, 1.0]])  # the second node's own loop weighs 0.5
    scale = dense.sum(1).rsqrt()
    normed, (weight,) = scale[:, None] * dense * scale, model.buffer_parameters()
    expected = normed @ gnn[0].lin.weight.t() + gnn[0].bias + weight / 3  # D counts edges, not their weights
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("layout", ["edge_index", "csr"])
def test_self_loops_that_weigh_one_are_those_of_the_clean_pass(layout: str, weights: bool) -> None:
    """However PyG treats those that a graph has: it adds one to them in a sparse matrix."""
    data = small_graph(0, nodes=40, edges=90, features=F_IN, loops=True, weights=weights)
    data = as_csr(data) if layout == "csr" else data
    model = moved(ab.attach(seeded(MODELS["gcn"]).eval(), data))
    passes, checked = PlainPasses(model, Graph.of(data)), Graph.of(data)
    everything = torch.ones(checked.num_edges, dtype=torch.bool)
    found = passes.run(passes.only(everything, "together", torch.ones(40)))
    torch.testing.assert_close(found, passes.run(passes.whole), rtol=1e-5, atol=1e-5)


class AddsItsOwnLoops(nn.Module):
    """Calls its layers with other edges than the graph's."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([GCNConv(F_IN, 8), GCNConv(8, CLASSES)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges = add_remaining_self_loops(edge_index, num_nodes=x.size(0))[0]
        return self.convs[1](self.convs[0](x, edges).relu(), edges)


@pytest.mark.parametrize("kind", ["weights", "edges of its own"])
def test_self_loops_are_redrawn_also_where_layers_do_not_run_fast(kind: str) -> None:
    data = small_graph(0, nodes=40, edges=90, features=F_IN, weights=kind == "weights")
    gnn = seeded(MODELS["gcn"] if kind == "weights" else AddsItsOwnLoops).eval()
    histories = []
    for accelerate in (True, False):
        model = ab.attach(gnn, data)
        options = {"self_loops": "redrawn", "max_epochs": 4, "accelerate": accelerate}
        histories.append(ab.fit(model, data, **options).history)
        if accelerate:
            with pytest.raises(ab.AggBufferError, match="no edge weights"):
                ab.fit(model, data, self_loops="redrawn", batch=ab.BatchConfig(seeds=20))
            assert ab.fit(model, data, batch=ab.BatchConfig(seeds=20), max_epochs=1).config.self_loops == "kept"
        ab.detach(model)
    assert not FastPasses(ab.attach(gnn, data), Graph.of(data)).weighs_loops
    for fast, plain in zip(*histories, strict=True):
        assert (fast.robust, fast.val_loss) == pytest.approx((plain.robust, plain.val_loss), rel=1e-4)


class InPlace(nn.Module):
    """Writes into whatever its layers give it."""

    def __init__(self) -> None:
        super().__init__()
        self.map, self.convs = nn.Linear(F_IN, 8), nn.ModuleList([GCNConv(F_IN, 8), GCNConv(8, CLASSES)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = F.elu_(self.convs[0](x, edge_index))
        return self.convs[1](self.map(x).mul_(3).add_(h), edge_index)


@pytest.mark.parametrize("inference", [False, True])
def test_a_constant_that_the_model_writes_to_is_made_again(inference: bool) -> None:
    """On a large graph no check would find out."""
    data = graph()
    model = moved(ab.attach(seeded(InPlace).eval(), data))
    checked = Graph.of(data)
    expected = PlainPasses(model, checked).run(data).detach()
    with torch.inference_mode() if inference else torch.no_grad():
        passes = FastPasses(model, checked, keep_first=True)
        with passes.ready():
            answers = [passes.run(passes.whole).clone() for _ in range(3)]
    for answer in answers:
        torch.testing.assert_close(answer, expected, rtol=1e-5, atol=1e-5)
    passes = FastPasses(model, checked)
    mask = keep_mask(checked, 0.4, torch.Generator().manual_seed(0))
    plain, fast = (step(each, model, mask, dropout=0.0) for each in (PlainPasses(model, checked), passes))
    for wanted, found in zip(plain, fast, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-4)


def test_redrawn_self_loops_are_refused_where_they_cannot_be_had() -> None:
    data = graph()
    for name in ("sage", "gat, which has no fast form"):
        model = ab.attach(MODELS[name]().eval(), data)
        with pytest.raises(ab.AggBufferError, match="self_loops='redrawn' needs"):
            ab.fit(model, data, self_loops="redrawn", max_epochs=1)
        assert ab.fit(model, data, max_epochs=1).config.self_loops == "kept"


@pytest.mark.parametrize("accelerate", [True, False])
def test_self_loops_are_treated_as_validation_nodes_tell(accelerate: bool) -> None:
    """As if the better way had been asked for, to the bit; a user's own perturbation leaves nothing to try."""
    data, gnn, results = graph(), seeded(MODELS["gcn"]).eval(), {}
    for kind in ("kept", "redrawn", "auto"):
        model = ab.attach(gnn, data)
        results[kind] = ab.fit(model, data, self_loops=kind, max_epochs=8, accelerate=accelerate)
        ab.detach(model)
    best = {kind: min(record.score for record in results[kind].history) for kind in ("kept", "redrawn")}
    assert best["kept"] != best["redrawn"]
    better = min(best, key=best.__getitem__)
    assert results["auto"].config.self_loops == better
    assert results["auto"].history == results[better].history
    own = ab.fit(ab.attach(gnn, data), data, max_epochs=1, perturb=lambda g, _: g.data, accelerate=accelerate)
    assert own.config.self_loops == "kept"


def test_what_a_frozen_map_makes_of_the_features_is_computed_once() -> None:
    data, gnn = graph(), seeded(ResidualGCN).eval()
    expected = gnn(data.x, data.edge_index)
    calls: list[Tensor] = []
    model = ab.attach(gnn, data)
    passes = FastPasses(model, Graph.of(data))
    own = nn.Linear.forward

    def counted(self: nn.Linear, x: Tensor) -> Tensor:
        calls.append(x)
        return own(self, x)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.Linear, "forward", counted)
        with passes.ready():
            answers = [passes.run(passes.whole) for _ in range(3)]
    for answer in answers:
        torch.testing.assert_close(answer, expected)
    assert sum(x is data.x for x in calls) == 1
    assert "forward" not in gnn.residual.__dict__
