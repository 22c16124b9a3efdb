"""Attaching changes no bit, detaching leaves no trace, and the block sees what method.md says."""

from __future__ import annotations

import copy
import importlib
import io
import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import (
    APPNP,
    GAT,
    GCN,
    GIN,
    PNA,
    ChebConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GENConv,
    GINConv,
    GINEConv,
    GraphConv,
    GraphSAGE,
    LEConv,
    SAGEConv,
    Sequential,
    SGConv,
    TAGConv,
    TransformerConv,
)

import aggbuffer
from aggbuffer import BufferedGNN
from conftest import CLASSES, FEATURES, Footprint, answer, as_csr, seeded, shake, small_graph

HIDDEN = 8
DEGREES = torch.tensor([1, 2, 4, 3, 2, 1])

READY: dict[str, Callable[..., nn.Module]] = {
    "GCN": GCN,
    "GraphSAGE": GraphSAGE,
    "GATv1": lambda *sizes, **kwargs: GAT(*sizes, heads=2, **kwargs),
    "GATv2": lambda *sizes, **kwargs: GAT(*sizes, v2=True, **kwargs),
    "GIN": GIN,
    "PNA": lambda *sizes, **kwargs: PNA(
        *sizes, aggregators=["mean", "max"], scalers=["identity", "amplification"], deg=DEGREES, **kwargs
    ),
}


def mlp(width: int, out: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, HIDDEN), nn.ReLU(), nn.BatchNorm1d(HIDDEN), nn.Linear(HIDDEN, out))


CONVS: dict[str, Callable[[int, int], nn.Module]] = {
    "GCNConv": GCNConv,
    "SAGEConv": SAGEConv,
    "SAGEConv-max-project": lambda i, o: SAGEConv(i, o, aggr="max", project=True),
    "GATConv": lambda i, o: GATConv(i, o // 2, heads=2),
    "GATConv-mean": lambda i, o: GATConv(i, o, heads=3, concat=False),
    "GATv2Conv": lambda i, o: GATv2Conv(i, o // 2, heads=2),
    "GATv2Conv-mean": lambda i, o: GATv2Conv(i, o, heads=2, concat=False),
    "GINConv": lambda i, o: GINConv(mlp(i, o)),
    "SGConv": lambda i, o: SGConv(i, o, K=2),
    "GraphConv": GraphConv,
    "TAGConv": TAGConv,
    "ChebConv": lambda i, o: ChebConv(i, o, K=3),
    "APPNP": lambda i, o: APPNP(K=2, alpha=0.1),
    "TransformerConv": lambda i, o: TransformerConv(i, o // 2, heads=2, beta=True),
    "TransformerConv-mean": lambda i, o: TransformerConv(i, o, heads=2, concat=False),
    "GENConv": GENConv,
    "LEConv": LEConv,
    "flow": lambda i, o: GCNConv(i, o, flow="target_to_source"),
}
WEIGHTED = ["GCNConv", "SGConv", "GraphConv", "TAGConv", "ChebConv", "APPNP", "LEConv"]
WITH_ATTRIBUTES: dict[str, Callable[[int, int], nn.Module]] = {
    "GATConv": lambda i, o: GATConv(i, o, edge_dim=3),
    "GATv2Conv": lambda i, o: GATv2Conv(i, o, edge_dim=3),
    "GINEConv": lambda i, o: GINEConv(mlp(i, o), edge_dim=3),
    "TransformerConv": lambda i, o: TransformerConv(i, o, edge_dim=3),
    "GENConv": lambda i, o: GENConv(i, o, edge_dim=3),
}
NO_CSR = {"ChebConv", "LEConv", "flow"}  # PyG's own limits


class HandWritten(nn.Module):
    """An encoder, convolutions with residual connections and functional dropout, and a head."""

    def __init__(self, build: Callable[[int, int], nn.Module], edge: str = "") -> None:
        super().__init__()
        self.encoder = nn.Linear(FEATURES, HIDDEN)
        self.convs = nn.ModuleList([build(HIDDEN, HIDDEN) for _ in range(2)])
        self.norm = nn.BatchNorm1d(HIDDEN)
        self.head = nn.Sequential(nn.Dropout(0.4), nn.Linear(HIDDEN, CLASSES))
        self.edge = edge

    def convolve(self, x: Tensor, edges: Tensor, extra: Tensor | None) -> Tensor:
        x = self.encoder(x).relu()
        for conv in self.convs:
            h = F.dropout(x, 0.5, training=self.training)
            out = conv(h, edges) if extra is None else conv(h, edges, **{self.edge: extra})
            x = x + F.relu(self.norm(out))
        return self.head(x)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.convolve(x, edge_index, None)


class HandWrittenWithWeights(HandWritten):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        return self.convolve(x, edge_index, edge_weight)


class HandWrittenWithAttributes(HandWritten):
    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.convolve(x, edge_index, edge_attr)


def sequential() -> nn.Module:
    return Sequential(
        "x, edge_index",
        [
            (nn.Dropout(0.5), "x -> x"),
            (GCNConv(FEATURES, HIDDEN), "x, edge_index -> x1"),
            nn.ReLU(inplace=True),
            (GCNConv(HIDDEN, HIDDEN), "x1, edge_index -> x2"),
            (lambda a, b: a + b, "x1, x2 -> x"),
            nn.Linear(HIDDEN, CLASSES),
        ],
    )


def arguments(data: Data) -> tuple[Tensor, ...]:
    return data.x, data.edge_index if data.get("edge_index") is not None else data.adj_t


def extras(data: Data) -> dict[str, Tensor]:
    return {key: data[key] for key in ("edge_weight", "edge_attr") if data.get(key) is not None}


def check_no_op(gnn: nn.Module, data: Data, **kwargs: Tensor) -> None:
    """Attach and detach change no bit; moved buffers change the answer; ``disabled`` gives the base's to the bit."""
    args = arguments(data)
    before = answer(gnn, *args, **kwargs)
    footprint = Footprint(gnn)
    randomness = torch.get_rng_state()
    model = aggbuffer.attach(gnn, data)
    assert torch.equal(torch.get_rng_state(), randomness)
    assert list(gnn.state_dict()) == list(footprint.state)
    assert torch.equal(answer(model, *args, **kwargs), before)
    shake(model)
    assert not torch.equal(answer(model, *args, **kwargs), before)
    with model.disabled():
        assert torch.equal(answer(model, *args, **kwargs), before)
    assert torch.equal(answer(model.base, *args, **kwargs), before)
    assert aggbuffer.detach(model) is gnn
    footprint.check()
    assert torch.equal(answer(gnn, *args, **kwargs), before)


@pytest.mark.parametrize("norm", [None, "BatchNorm", "LayerNorm", "GraphNorm"])
@pytest.mark.parametrize("jk", [None, "last", "cat", "max", "lstm"])
@pytest.mark.parametrize("name", READY)
def test_ready_models(name: str, jk: str | None, norm: str | None) -> None:
    for act_first, csr in itertools.product([False, True], [False, True]):
        gnn = seeded(
            lambda act_first=act_first: READY[name](
                FEATURES, HIDDEN, 3, CLASSES, dropout=0.5, jk=jk, norm=norm, act_first=act_first
            )
        )
        data = small_graph(directed=csr)
        check_no_op(gnn.train(act_first), as_csr(data) if csr else data)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", READY)
def test_ready_models_in_other_types(name: str, dtype: torch.dtype) -> None:
    gnn = seeded(lambda: READY[name](FEATURES, HIDDEN, 2, CLASSES, norm="BatchNorm", jk="cat")).to(dtype)
    data = small_graph()
    data.x = data.x.to(dtype)
    check_no_op(gnn, data)
    assert {p.dtype for p in aggbuffer.attach(gnn, data).buffer_parameters()} == {dtype}


@pytest.mark.parametrize("name", CONVS)
def test_convolutions_in_a_hand_written_model(name: str) -> None:
    for directed, loops, csr in [(False, False, False), (True, True, False), (True, False, True)]:
        if csr and name in NO_CSR:
            continue
        data = small_graph(directed=directed, loops=loops)
        gnn = seeded(lambda: HandWritten(CONVS[name]))
        check_no_op(gnn, as_csr(data) if csr else data)


@pytest.mark.parametrize("name", WEIGHTED)
def test_edge_weights(name: str) -> None:
    data = small_graph(weights=True, directed=True, loops=True)
    gnn = seeded(lambda: HandWrittenWithWeights(CONVS[name], "edge_weight"))
    check_no_op(gnn, data, edge_weight=data.edge_weight)
    if name not in NO_CSR:
        check_no_op(seeded(lambda: HandWritten(CONVS[name])), as_csr(data))


@pytest.mark.parametrize("name", WITH_ATTRIBUTES)
def test_edge_attributes(name: str) -> None:
    data = small_graph(attributes=3)
    gnn = seeded(lambda: HandWrittenWithAttributes(WITH_ATTRIBUTES[name], "edge_attr"))
    check_no_op(gnn, data, edge_attr=data.edge_attr)


def test_a_sequential_with_inplace_activation() -> None:
    for data in (small_graph(loops=True), as_csr(small_graph())):
        check_no_op(seeded(sequential), data)


def test_attention_weights_beside_the_output() -> None:
    class Attentive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = GATConv(FEATURES, HIDDEN), GATConv(HIDDEN, CLASSES)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            x, (_, attention) = self.first(x, edge_index, return_attention_weights=True)
            return self.second(x.relu(), edge_index=edge_index) * attention.sum()

    check_no_op(seeded(Attentive), small_graph())


def test_keyword_arguments_all_the_way() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = GCNConv(FEATURES, HIDDEN), SGConv(HIDDEN, CLASSES, K=2)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            x = self.first(edge_index=edge_index, x=x).relu()
            return self.second(edge_index=edge_index, x=x)

    gnn = seeded(Named)
    data = small_graph()
    check_no_op(gnn, data)
    model = shake(aggbuffer.attach(gnn, data))
    with model.dropping(0.5, torch.Generator().manual_seed(0)):
        assert not torch.equal(model(data.x, data.edge_index), answer(model, data.x, data.edge_index))


def test_a_custom_forward(graph: Data) -> None:
    class TakesData(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GCNConv(FEATURES, CLASSES)

        def forward(self, edges: Tensor, data: Data) -> tuple[Tensor, str]:
            return self.conv(data.x, edges), "and more"

    gnn = seeded(TakesData)
    before = answer(gnn, graph.edge_index, graph)[0]
    model = aggbuffer.attach(gnn, graph, forward=lambda model, data: model(data.edge_index, data)[0])
    assert torch.equal(model.run(graph), before)
    shake(model)
    assert not torch.equal(model(graph.edge_index, graph)[0], before)


def test_a_one_dimensional_answer(graph: Data) -> None:
    class Scalar(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GCNConv(FEATURES, 1)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv(x, edge_index).squeeze(-1)

    assert aggbuffer.attach(seeded(Scalar), graph).run(graph).shape == (14, 1)


class Dropping(nn.Module):
    """Two layers with dropout between, as a function or as a module."""

    def __init__(self, functional: bool) -> None:
        super().__init__()
        self.first, self.second = GCNConv(FEATURES, HIDDEN), GCNConv(HIDDEN, CLASSES)
        self.dropout = nn.Dropout(0.5)
        self.functional = functional

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.first(x, edge_index).relu()
        x = F.dropout(x, 0.5, training=self.training) if self.functional else self.dropout(x)
        return self.second(x, edge_index)


@pytest.mark.parametrize("functional", [True, False])
def test_hidden_states_are_read_before_dropout(graph: Data, functional: bool) -> None:
    """The convolution sees dropped inputs at the asked ratio, the block undropped ones; the base's own ratio is off."""
    model = shake(aggbuffer.attach(seeded(lambda: Dropping(functional)), graph)).train()
    hidden = model.base.first(graph.x, graph.edge_index)
    hidden = (hidden + model.blocks[0]([graph.x], _inverse(graph))).relu()
    read: list[Tensor] = []
    mapped: list[Tensor] = []
    model.blocks[1].register_forward_hook(lambda block, args, out: read.append(args[0][1]))
    model.base.second.lin.register_forward_hook(lambda linear, args, out: mapped.append(args[0]))
    model(graph.x, graph.edge_index)
    with model.dropping(0.7, torch.Generator().manual_seed(5)):
        first = model(graph.x, graph.edge_index)
    with model.dropping(0.7, torch.Generator().manual_seed(5)):
        second = model(graph.x, graph.edge_index)
    assert torch.equal(first, second)
    for seen in read:
        torch.testing.assert_close(seen, hidden)
    torch.testing.assert_close(mapped[0], hidden)
    gone = (mapped[1] == 0) & (hidden != 0)
    assert 0.4 < gone.sum() / (hidden != 0).sum() < 0.95
    kept = mapped[1] != 0
    torch.testing.assert_close(mapped[1][kept] / hidden[kept], torch.full((int(kept.sum()),), 256 / (256 - 179)))


def _inverse(graph: Data) -> Tensor:
    degree = torch.zeros(graph.num_nodes).scatter_add_(0, graph.edge_index[1], torch.ones(graph.num_edges))
    return (1 / (degree + 1)).unsqueeze(1)


def test_jumping_knowledge_and_heads_feel_every_layer(graph: Data) -> None:
    """Each block alone moves the answer, so none is wired past the model's head."""
    model = aggbuffer.attach(seeded(lambda: GCN(FEATURES, HIDDEN, 3, CLASSES, jk="cat")), graph)
    before = answer(model, graph.x, graph.edge_index)
    assert [block.widths for block in model.blocks] == [(6,), (6, 8), (6, 8, 8)]
    assert model.num_buffer_parameters == (6 + 14 + 22) * 8
    for block in model.blocks:
        with torch.no_grad():
            block.weight.fill_(0.1)
        assert not torch.equal(answer(model, graph.x, graph.edge_index), before)
        with torch.no_grad():
            block.weight.zero_()


def test_only_buffers_train(graph: Data) -> None:
    gnn = seeded(lambda: GCN(FEATURES, HIDDEN, 2, CLASSES, norm="BatchNorm")).train()
    state = {key: value.clone() for key, value in gnn.state_dict().items()}
    model = shake(aggbuffer.attach(gnn, graph)).train()
    assert model.training
    assert not any(part.training for part in gnn.modules())
    assert [p for p in model.parameters() if p.requires_grad] == model.buffer_parameters()
    optimizer = torch.optim.Adam(model.buffer_parameters(), weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(graph.x, graph.edge_index), graph.y).backward()
        optimizer.step()
    assert all(torch.equal(gnn.state_dict()[key], value) for key, value in state.items())
    assert all(p.grad is None for p in gnn.parameters())
    model.eval()
    assert not model.training


def test_detach_after_partial_freezing_and_mixed_modes(graph: Data) -> None:
    gnn = seeded(lambda: GCN(FEATURES, HIDDEN, 3, CLASSES, norm="BatchNorm", dropout=0.3)).train()
    gnn.convs[0].eval()
    next(gnn.parameters()).requires_grad_(False)
    gnn.convs[1].register_forward_hook(lambda module, args, out: out * 2)
    check_no_op(gnn, graph)


def test_detach_after_an_exception_in_forward(graph: Data) -> None:
    class Moody(nn.Linear):
        angry = False

        def forward(self, x: Tensor) -> Tensor:
            if self.angry:
                raise RuntimeError("in the middle")
            return super().forward(x)

    mood = Moody(HIDDEN, CLASSES)  # inside a GIN, so that the exception comes between that layer's hooks
    gnn = seeded(
        lambda: Sequential(
            "x, edge_index",
            [(GCNConv(FEATURES, HIDDEN), "x, edge_index -> x"), (GINConv(mood), "x, edge_index -> x")],
        )
    )
    footprint, before = Footprint(gnn), answer(gnn, graph.x, graph.edge_index)
    model = shake(aggbuffer.attach(gnn, graph))
    corrected = answer(model, graph.x, graph.edge_index)
    mood.angry = True
    with pytest.raises(RuntimeError, match="in the middle"):
        model(graph.x, graph.edge_index)
    mood.angry = False
    assert torch.equal(answer(model.base, graph.x, graph.edge_index), before)  # no half-finished pass lingers
    assert torch.equal(answer(model, graph.x, graph.edge_index), corrected)
    with pytest.raises(RuntimeError, match="on purpose"), model.disabled():
        raise RuntimeError("on purpose")
    with pytest.raises(RuntimeError, match="on purpose"), model.dropping(0.5):
        raise RuntimeError("on purpose")
    assert torch.equal(answer(model, graph.x, graph.edge_index), corrected)
    aggbuffer.detach(model)
    footprint.check()
    assert torch.equal(answer(gnn, graph.x, graph.edge_index), before)


def test_an_exception_before_an_inner_mlp(graph: Data) -> None:
    """The term that was meant for that MLP is forgotten, also by a call of the base itself."""

    class Moody(GINConv):
        angry = False

        def message(self, x_j: Tensor) -> Tensor:
            if self.angry:
                raise RuntimeError("while aggregating")
            return super().message(x_j)

    gnn = seeded(lambda: HandWritten(lambda i, o: Moody(nn.Linear(i, o))))
    before = answer(gnn, graph.x, graph.edge_index)
    model = shake(aggbuffer.attach(gnn, graph))
    gnn.convs[1].angry = True
    with pytest.raises(RuntimeError, match="while aggregating"):
        model(graph.x, graph.edge_index)
    gnn.convs[1].angry = False
    assert torch.equal(answer(model.base, graph.x, graph.edge_index), before)


def test_attach_again_after_detach(graph: Data) -> None:
    gnn = seeded(lambda: GIN(FEATURES, HIDDEN, 2, CLASSES))
    before = answer(gnn, graph.x, graph.edge_index)
    for _ in range(2):
        model = shake(aggbuffer.attach(gnn, graph))
        assert not torch.equal(answer(model, graph.x, graph.edge_index), before)
        aggbuffer.detach(model)
    footprint = Footprint(gnn)
    aggbuffer.detach(model)  # a second time: harmless
    footprint.check()


COMPILED: dict[str, Callable[[], nn.Module]] = {
    "GCN": lambda: GCN(FEATURES, HIDDEN, 2, CLASSES, norm="BatchNorm"),
    "GIN": lambda: GIN(FEATURES, HIDDEN, 2, CLASSES),
    "SGC": lambda: HandWritten(CONVS["SGConv"]),
}


# Dynamo itself looks at such gradients where a graph breaks.
quiet_dynamo = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")


# PyG's GCN normalisation does not compile on CSR input, with or without buffers.
@quiet_dynamo
@pytest.mark.parametrize(("name", "csr"), [("GCN", False), ("GIN", False), ("SGC", False), ("GIN", True)])
def test_torch_compile(name: str, csr: bool) -> None:
    _check_compiled(name, csr, "eager")


@pytest.mark.slow
@quiet_dynamo
@pytest.mark.parametrize("name", COMPILED)
def test_torch_compile_with_inductor(name: str) -> None:
    _check_compiled(name, False, "inductor")


def _check_compiled(name: str, csr: bool, backend: str) -> None:
    torch._dynamo.reset()
    data = small_graph(directed=True)
    data = as_csr(data) if csr else data
    gnn = seeded(COMPILED[name])
    footprint, before = Footprint(gnn), answer(gnn, *arguments(data))
    model = shake(aggbuffer.attach(gnn, data))
    expected = answer(model, *arguments(data))
    compiled = torch.compile(model, backend=backend)
    torch.testing.assert_close(answer(compiled, *arguments(data)), expected)
    assert not torch.allclose(expected, before)  # so the compiled answer is that with buffers
    with model.disabled():
        torch.testing.assert_close(answer(compiled, *arguments(data)), before)
    compiled(*arguments(data)).sum().backward()
    assert all(p.grad is not None for p in model.buffer_parameters())
    assert aggbuffer.detach(compiled) is gnn
    footprint.check()
    assert torch.equal(answer(gnn, *arguments(data)), before)


@pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects:UserWarning")  # the pass's own state
@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.parametrize("strict", [False, True])
def test_torch_export(name: str, strict: bool, graph: Data) -> None:
    torch._dynamo.reset()
    gnn = seeded(COMPILED[name])
    footprint, before = Footprint(gnn), answer(gnn, graph.x, graph.edge_index)
    model = shake(aggbuffer.attach(gnn, graph)).eval()
    expected = answer(model, graph.x, graph.edge_index)
    program = torch.export.export(model, (graph.x, graph.edge_index), strict=strict)
    with torch.no_grad():
        torch.testing.assert_close(program.module()(graph.x, graph.edge_index), expected)
    assert torch.equal(answer(model, graph.x, graph.edge_index), expected)
    assert torch.equal(answer(model.base, graph.x, graph.edge_index), before)
    aggbuffer.detach(model)
    footprint.check()
    assert torch.equal(answer(gnn, graph.x, graph.edge_index), before)


@pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects:UserWarning")
def test_torch_export_for_graphs_of_any_size(graph: Data) -> None:
    torch._dynamo.reset()
    model = shake(aggbuffer.attach(seeded(COMPILED["GCN"]), graph)).eval()
    sizes = {"args": ({0: Dim("nodes", min=2, max=10**6)}, {1: Dim("edges", min=2, max=10**8)})}
    program = torch.export.export(model, (graph.x, graph.edge_index), dynamic_shapes=sizes)
    other = small_graph(3, nodes=21, edges=50)
    with torch.no_grad():
        found = program.module()(other.x, other.edge_index)
    torch.testing.assert_close(found, answer(model, other.x, other.edge_index))


# PyG's GCN normalisation cannot be exported on CSR input, with or without buffers.
@pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects:UserWarning")
@pytest.mark.parametrize("strict", [False, True])
def test_torch_export_with_csr(strict: bool) -> None:
    torch._dynamo.reset()
    data = as_csr(small_graph(directed=True, loops=True))
    model = shake(aggbuffer.attach(seeded(COMPILED["GIN"]), data)).eval()
    expected = answer(model, data.x, data.adj_t)
    program = torch.export.export(model, (data.x, data.adj_t), strict=strict)
    with torch.no_grad():
        torch.testing.assert_close(program.module()(data.x, data.adj_t), expected)


def test_deepcopy_is_independent(graph: Data) -> None:
    for build in COMPILED.values():
        gnn = seeded(build)
        before = answer(gnn, graph.x, graph.edge_index)
        model = shake(aggbuffer.attach(gnn, graph))
        expected = answer(model, graph.x, graph.edge_index)
        twin = copy.deepcopy(model)
        assert twin.base is not model.base
        assert torch.equal(answer(twin, graph.x, graph.edge_index), expected)
        shake(twin, seed=9)
        assert not torch.equal(answer(twin, graph.x, graph.edge_index), expected)
        footprint = Footprint(aggbuffer.detach(twin))
        assert all(p.requires_grad for p in twin.base.parameters())
        assert sum(footprint.hooks) == sum(Footprint(seeded(build)).hooks)
        assert torch.equal(answer(twin.base, graph.x, graph.edge_index), before)
        assert torch.equal(answer(model, graph.x, graph.edge_index), expected)


def test_pickling_the_whole_module(graph: Data) -> None:
    for build in COMPILED.values():
        gnn = seeded(build)
        model = shake(aggbuffer.attach(gnn, graph))
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        back = torch.load(file, weights_only=False)
        assert isinstance(back, BufferedGNN)
        assert torch.equal(answer(back, graph.x, graph.edge_index), answer(model, graph.x, graph.edge_index))
        base = aggbuffer.detach(back)
        assert torch.equal(answer(base, graph.x, graph.edge_index), answer(gnn, graph.x, graph.edge_index))
        assert sum(Footprint(base).hooks) == sum(Footprint(seeded(build)).hooks)


def test_state_dict_round_trip(graph: Data) -> None:
    model = shake(aggbuffer.attach(seeded(COMPILED["GCN"]), graph))
    state = model.state_dict()
    other = aggbuffer.attach(seeded(COMPILED["GCN"], seed=3), graph)
    other.load_state_dict(state)
    assert torch.equal(answer(other, graph.x, graph.edge_index), answer(model, graph.x, graph.edge_index))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", COMPILED)
def test_a_change_of_type_takes_the_buffers_along(name: str, dtype: torch.dtype, graph: Data) -> None:
    model = shake(aggbuffer.attach(seeded(COMPILED[name]), graph), size=0.05)
    expected = answer(model, graph.x, graph.edge_index)
    changed = model.half() if dtype == torch.float16 else model.to(dtype)
    out = answer(changed, graph.x.to(dtype), graph.edge_index)
    assert out.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float64 else 0.05
    torch.testing.assert_close(out.double(), expected.double(), rtol=tolerance, atol=tolerance)


def test_bfloat16_counts_many_neighbours() -> None:
    """A hub of degree 300, which bfloat16 cannot count to one by one."""
    hub = torch.stack([torch.arange(1, 301), torch.zeros(300, dtype=torch.int64)])
    data = Data(x=torch.ones(301, FEATURES, dtype=torch.bfloat16), edge_index=hub)
    model = aggbuffer.attach(seeded(lambda: GCN(FEATURES, HIDDEN, 1, CLASSES)).bfloat16(), data)
    with torch.no_grad():
        model.blocks[0].weight.fill_(1.0)
    terms: list[Tensor] = []
    model.blocks[0].register_forward_hook(lambda block, args, out: terms.append(out))
    answer(model, data.x, data.edge_index)
    torch.testing.assert_close(terms[0][0].float(), torch.full((CLASSES,), FEATURES / 301), rtol=0.01, atol=0)


def test_other_graphs_than_the_one_attached_on(graph: Data) -> None:
    gnn = seeded(COMPILED["GCN"])
    model = shake(aggbuffer.attach(gnn, graph))
    other = small_graph(3, nodes=40, edges=80, directed=True)
    assert answer(model, other.x, other.edge_index).shape == (40, CLASSES)
    none = torch.empty(2, 0, dtype=torch.int64)
    assert answer(model, other.x, none).shape == (40, CLASSES)
    csr = as_csr(other)
    torch.testing.assert_close(answer(model, csr.x, csr.adj_t), answer(model, other.x, other.edge_index))
    with pytest.raises(aggbuffer.AggBufferError, match="received 5 features"):
        model(torch.randn(4, 5), none)


def test_detach_wants_a_buffered_model() -> None:
    with pytest.raises(aggbuffer.AggBufferError, match="only a BufferedGNN"):
        aggbuffer.detach(nn.Linear(2, 2))


class WeightsOfItsOwn(nn.Module):
    """Holds a weight for every edge of the graph that it was made for."""

    def __init__(self, edges: int) -> None:
        super().__init__()
        self.conv, self.edge_weight = GCNConv(FEATURES, CLASSES), torch.ones(edges)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index, self.edge_weight)


def test_a_large_graph_is_attached_to_with_a_part_of_its_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    data = small_graph()
    monkeypatch.setattr(importlib.import_module("aggbuffer.attach"), "_ENOUGH_EDGES", 5)
    for gnn in (GCN(FEATURES, 8, 2, CLASSES).eval(), WeightsOfItsOwn(data.num_edges).eval()):
        expected = answer(gnn, data.x, data.edge_index)
        model = aggbuffer.attach(gnn, data)
        assert torch.equal(answer(model, data.x, data.edge_index), expected)
