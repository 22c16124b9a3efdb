"""What cannot carry a buffer is refused in one sentence, before anything was touched."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import (
    GCN,
    ARMAConv,
    FiLMConv,
    GCNConv,
    GINConv,
    HGTConv,
    MessagePassing,
    SAGEConv,
    SGConv,
    TAGConv,
    TopKPooling,
)

import aggbuffer
from aggbuffer import AggBufferError, BufferConfig
from aggbuffer.errors import ConfigError, ModelError, ModelTypeError
from conftest import CLASSES, FEATURES, Footprint, as_csr, seeded, shake, small_graph


class Model(nn.Module):
    """A convolution and whatever a test does with it."""

    def __init__(self, conv: nn.Module, call: Callable[..., object] | None = None, **parts: nn.Module) -> None:
        super().__init__()
        self.conv = conv
        self.norm = nn.BatchNorm1d(FEATURES)
        self.call = call
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.norm(x)
        return self.conv(x, edge_index) if self.call is None else self.call(self, x, edge_index)


def twice(model: Model, x: Tensor, edges: Tensor) -> Tensor:
    return model.conv(model.conv(x, edges).relu(), edges)


def bipartite(model: Model, x: Tensor, edges: Tensor) -> Tensor:
    return model.conv((x, x), edges)


def hetero(model: Model, x: Tensor, edges: Tensor) -> Tensor:
    out: Tensor = model.conv({"n": x}, {("n", "to", "n"): edges})["n"]
    return out


def pooled(model: Model, x: Tensor, edges: Tensor) -> Tensor:
    x, edges, *_ = model.pool(x, edges)
    return model.conv(x, edges).mean(0, keepdim=True)


def stubborn(model: Model, x: Tensor, edges: Tensor) -> Tensor:
    return model.conv(F.dropout(x, 0.5), edges)


def misplaced(model: Model, x: Tensor, edges: Tensor) -> Tensor:
    return model.conv(edges, x)


class FeaturesSecond(MessagePassing):
    def forward(self, edge_index: Tensor, x: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)


class Twofold(MessagePassing):
    """Propagates twice in a way that the library has never seen."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.propagate(edge_index, x=x).relu())


class Everywhere(MessagePassing):
    """Adds a dimension."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)[None]


def gcn() -> nn.Module:
    return GCNConv(FEATURES, CLASSES)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "cached GCN": (lambda: Model(GCNConv(FEATURES, CLASSES, cached=True)), "cached=True .* cached=False"),
    "cached SGC": (lambda: Model(SGConv(FEATURES, CLASSES, cached=True)), "cached=True"),
    "cached and alone": (lambda: SGConv(FEATURES, CLASSES, cached=True), "The model, a SGConv, was built with cached"),
    "called twice": (lambda: Model(GCNConv(FEATURES, FEATURES), twice), "ran more than once"),
    "no message passing": (lambda: Model(gcn(), lambda model, x, edges: x), "No message-passing layer ran in Model"),
    "an MLP": (lambda: nn.Linear(FEATURES, CLASSES), "could not run|No message-passing"),
    "bipartite": (lambda: Model(SAGEConv(FEATURES, CLASSES), bipartite), r"'conv' \(SAGEConv\) .*bipartite"),
    "heterogeneous": (
        lambda: Model(HGTConv(FEATURES, CLASSES, (["n"], [("n", "to", "n")])), hetero),
        r"\(HGTConv\) is heterogeneous",
    ),
    "pooling": (lambda: Model(gcn(), pooled, pool=TopKPooling(FEATURES)), "one row per node|expected logits of shape"),
    "compiled": (lambda: torch.compile(Model(gcn()), backend="eager"), "already compiled"),
    "lazy": (lambda: Model(GCNConv(-1, CLASSES)), "'conv.lin.weight' has no shape yet"),
    "unknown multi-hop": (lambda: Model(Twofold()), r"aggregates 2 times .*site='output'"),
    "ARMA": (lambda: Model(ARMAConv(FEATURES, CLASSES, num_layers=2)), "aggregates 2 times"),
    "not a module": (lambda: "gnn.pt", "The model is a str; expected a torch.nn.Module"),
    "a class": (lambda: GCN, "The model is a type|expected a torch.nn.Module"),
    "ignores training": (lambda: Model(gcn(), stubborn), "differently from one call to the next"),
    "features second": (lambda: Model(FeaturesSecond(), misplaced), "one row per node|features of shape"),
    "three dimensions": (lambda: Model(Everywhere()), "expected a tensor of shape|expected logits"),
    "another width": (lambda: Model(GCNConv(9, CLASSES)), "6 features per node, but the model expects 9"),
    "a crash": (lambda: Model(gcn(), lambda model, x, edges: x[0, 0, 0]), "could not run on this graph .*forward="),
    "a silent crash": (lambda: Model(gcn(), lambda model, x, edges: next(iter(()))), "could not run .*StopIteration"),
    "a tuple": (lambda: Model(gcn(), lambda model, x, edges: (model.conv(x, edges), x)), "returned a tuple"),
    "graph level": (lambda: Model(gcn(), lambda model, x, e: model.conv(x, e).mean(0)), r"tensor of shape \[4\]"),
}


def one_sentence(error: BaseException) -> None:
    """One or two sentences on one line that end like sentences."""
    text = str(error)
    assert text[-1] in ".)"
    assert "\n" not in text
    assert 20 < len(text) < 400
    assert "Traceback" not in text


@pytest.mark.parametrize("name", REFUSED)
def test_refused_and_untouched(name: str, graph: Data) -> None:
    build, message = REFUSED[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        gnn = build()
        if name == "lazy":
            with pytest.raises(AggBufferError, match=message) as caught:
                aggbuffer.attach(gnn, graph)
            one_sentence(caught.value)
            assert gnn.training
            assert not gnn.conv._forward_pre_hooks or len(gnn.conv._forward_pre_hooks) == len(
                GCNConv(-1, CLASSES)._forward_pre_hooks
            )
            return
        module = isinstance(gnn, nn.Module)
        if module:
            gnn.train()
            next(gnn.parameters()).requires_grad_(False)
            footprint = Footprint(gnn)
        randomness = torch.get_rng_state()
        with pytest.raises(AggBufferError, match=message) as caught:
            aggbuffer.attach(gnn, graph)
        assert isinstance(caught.value, ValueError | TypeError)
        one_sentence(caught.value)
        if module:
            footprint.check()
        assert torch.equal(torch.get_rng_state(), randomness)


def test_a_layer_that_propagates_once_is_enough(graph: Data) -> None:
    model = aggbuffer.attach(seeded(lambda: Model(FiLMConv(FEATURES, CLASSES))), graph)
    assert [layer.kind for layer in model.layers] == ["output"]


def test_a_forward_that_is_no_function(graph: Data) -> None:
    gnn = seeded(lambda: GCN(FEATURES, 8, 2, CLASSES))
    for call in (aggbuffer.attach, aggbuffer.evaluate, aggbuffer.diagnose):
        with pytest.raises(ConfigError, match="forward is a int; expected a function"):
            call(gnn, graph, forward=3)  # type: ignore[operator]


def test_already_attached(graph: Data) -> None:
    gnn = seeded(lambda: GCN(FEATURES, 8, 2, CLASSES))
    model = shake(aggbuffer.attach(gnn, graph))
    out = model.run(graph)
    for again in (model, gnn, gnn.convs[0], nn.Sequential(gnn)):
        with pytest.raises(ModelError, match="already carries buffers; detach"):
            aggbuffer.attach(again, graph)
    assert torch.equal(model.run(graph), out)


def test_types_of_errors(graph: Data) -> None:
    with pytest.raises(TypeError):
        aggbuffer.attach(3, graph)
    with pytest.raises(ModelTypeError):
        aggbuffer.attach(None, graph)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:.*torch.jit:FutureWarning")
def test_torchscript(graph: Data) -> None:
    scripted = torch.jit.script(nn.Linear(FEATURES, CLASSES))
    with pytest.raises(ModelError, match="TorchScript"):
        aggbuffer.attach(scripted, graph)


def test_half_precision_on_an_operator_that_lacks_it(graph: Data) -> None:
    class Fourier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GCNConv(FEATURES, CLASSES)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv(x, edge_index) + torch.linalg.svdvals(x)[0]

    gnn = Fourier().bfloat16()
    footprint = Footprint(gnn)
    graph.x = graph.x.bfloat16()
    with pytest.raises(ModelError, match=re.escape("cannot run in torch.bfloat16 on cpu")) as caught:
        aggbuffer.attach(gnn, graph)
    one_sentence(caught.value)
    footprint.check()


def test_a_graph_in_another_type_than_the_model(graph: Data) -> None:
    gnn = seeded(lambda: GCN(FEATURES, 8, 2, CLASSES))
    footprint = Footprint(gnn)
    graph.x = graph.x.double()
    told = "weights are torch.float32, but data.x is torch.float64; .*to(torch.float32)"
    with pytest.raises(ModelError, match=told.replace("(", r"\(").replace(")", r"\)")) as caught:
        aggbuffer.attach(gnn, graph)
    one_sentence(caught.value)
    footprint.check()


def test_site_output_takes_the_unknown_multi_hop(graph: Data) -> None:
    model = aggbuffer.attach(Model(Twofold()), graph, BufferConfig(site="output"))
    assert [(layer.kind, layer.hops) for layer in model.layers] == [("output", 1)]


def test_what_a_run_shows() -> None:
    """Names, order of running (not of definition), widths and kinds."""

    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = TAGConv(8, CLASSES, K=2)
            self.unused = GCNConv(3, 3)
            self.middle = GINConv(nn.Linear(5, 8))
            self.first = GCNConv(FEATURES, 5)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            for conv in (self.first, self.middle, self.last):
                x = conv(x, edge_index).relu()
            return x

    for graph in (small_graph(), as_csr(small_graph())):
        model = aggbuffer.attach(Backwards(), graph)
        seen = [(s.name, s.kind, s.in_width, s.out_width, s.hops) for s in model.layers]
        assert seen == [("first", "output", 6, 5, 1), ("middle", "mlp", 5, 5, 1), ("last", "hops", 8, CLASSES, 2)]
        assert [b.widths for b in model.blocks] == [(6,), (6, 5), (6, 5, 8, 4), (6, 5, 8, 4, 4)]
        assert all(torch.count_nonzero(p) == 0 for p in model.buffer_parameters())


def test_layers_in_another_order_later_are_noticed(graph: Data) -> None:
    class Fickle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = GCNConv(FEATURES, FEATURES), GCNConv(FEATURES, FEATURES)
            self.swap = False

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            first, second = (self.b, self.a) if self.swap else (self.a, self.b)
            return second(first(x, edge_index).relu(), edge_index)

    gnn = Fickle()
    model = aggbuffer.attach(gnn, graph)
    gnn.swap = True
    with pytest.raises(ModelError, match="same layers in the same order") as caught:
        model.run(graph)
    one_sentence(caught.value)


def test_negative_weights_and_weighted_degrees() -> None:
    data = small_graph(weights=True)
    data.edge_weight[3] = -1.0
    with pytest.raises(AggBufferError, match="found negative ones"):
        aggbuffer.attach(seeded(lambda: GCN(FEATURES, 8, 2, CLASSES)), data, BufferConfig(weighted_degree=True))


def test_an_interrupt_leaves_no_hooks(graph: Data) -> None:
    def interrupted(model: Model, x: Tensor, edges: Tensor) -> Tensor:
        model.conv(x, edges)
        raise KeyboardInterrupt

    gnn = Model(gcn(), interrupted)
    footprint = Footprint(gnn)
    with pytest.raises(KeyboardInterrupt):
        aggbuffer.attach(gnn, graph)
    footprint.check()
