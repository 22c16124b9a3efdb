"""The formula, against dense hand-written algebra: the block alone, and inside whole models."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import lru_cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    APPNP,
    ChebConv,
    GATConv,
    GCNConv,
    GENConv,
    GINConv,
    GraphConv,
    GraphSAGE,
    SAGEConv,
    Sequential,
    SGConv,
    TAGConv,
)

import aggbuffer
from aggbuffer import AggBufferError, BufferConfig, BufferedGNN
from aggbuffer.buffer import AggregationBuffer
from aggbuffer.graph import in_degree
from conftest import CLASSES, FEATURES, as_csr, seeded, shake, small_graph

HIDDEN = 5


@st.composite
def graphs(draw: st.DrawFn, loops: bool = True) -> tuple[Tensor, Tensor]:
    """Features and directed edges, with isolated nodes and (where asked) self-loops; perhaps no edges at all."""
    nodes = draw(st.integers(1, 8))
    pairs = [(s, t) for s in range(nodes) for t in range(nodes) if loops or s != t]
    chosen = draw(st.sets(st.sampled_from(pairs), max_size=20)) if pairs else set()
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    x = torch.randn(nodes, FEATURES, generator=generator, dtype=torch.float64)
    return x, torch.tensor(sorted(chosen), dtype=torch.int64).reshape(-1, 2).t().contiguous()


def dense(edges: Tensor, nodes: int, weight: Tensor | None = None) -> Tensor:
    """A[target, source]."""
    matrix = torch.zeros(nodes, nodes, dtype=torch.float64)
    matrix[edges[1], edges[0]] = 1.0 if weight is None else weight.double()
    return matrix


def without_loops(adjacency: Tensor) -> Tensor:
    return adjacency * (1 - torch.eye(len(adjacency), dtype=adjacency.dtype))


def inverse(adjacency: Tensor) -> Tensor:
    """(D + I)^-1, with D counting edges that are no self-loops."""
    return torch.diag(1 / ((without_loops(adjacency) != 0).sum(1).double() + 1))


def gcn_matrix(adjacency: Tensor) -> Tensor:
    """What GCN multiplies by: a self-loop of weight 1 where there is none, symmetric in the in-degrees."""
    looped = adjacency + torch.diag((adjacency.diagonal() == 0).double())
    root = looped.sum(1).rsqrt()
    return root[:, None] * looped * root


def cheb_matrix(adjacency: Tensor) -> Tensor:
    """The rescaled Laplacian 2 L / 2 - I of PyG's ChebConv, which normalises by out-degrees."""
    plain = without_loops(adjacency)
    root = plain.sum(0).rsqrt()
    root[root.isinf()] = 0
    return -(root[:, None] * plain * root)


def leaky(scores: Tensor) -> Tensor:
    return nn.functional.leaky_relu(scores, 0.2)


# One layer, densely: conv, its input, A, and term(states) = the buffer's next term, which also reads `states`.
Term = Callable[[list[Tensor]], Tensor]


def dense_gcn(conv: GCNConv, x: Tensor, adjacency: Tensor, term: Term) -> Tensor:
    return gcn_matrix(adjacency) @ x @ conv.lin.weight.T + conv.bias + term([])


def dense_sage(conv: SAGEConv, x: Tensor, adjacency: Tensor, term: Term) -> Tensor:
    mean = adjacency @ x / adjacency.sum(1, keepdim=True).clamp(min=1)
    return mean @ conv.lin_l.weight.T + conv.lin_l.bias + x @ conv.lin_r.weight.T + term([])


def dense_graphconv(conv: GraphConv, x: Tensor, adjacency: Tensor, term: Term) -> Tensor:
    return adjacency @ x @ conv.lin_rel.weight.T + conv.lin_rel.bias + x @ conv.lin_root.weight.T + term([])


def dense_gin(conv: GINConv, x: Tensor, adjacency: Tensor, term: Term) -> Tensor:
    return conv.nn(adjacency @ x + (1 + conv.eps) * x + term([]))


def dense_gat(conv: GATConv, x: Tensor, adjacency: Tensor, term: Term) -> Tensor:
    """With one self-loop per node; heads averaged."""
    looped = without_loops(adjacency) + torch.eye(len(x), dtype=x.dtype)
    mapped = (x @ conv.lin.weight.T).view(len(x), conv.heads, conv.out_channels)
    scores = leaky((mapped * conv.att_dst).sum(-1)[:, None] + (mapped * conv.att_src).sum(-1)[None])
    share = scores.masked_fill(looped[..., None] == 0, -torch.inf).softmax(1)
    return torch.einsum("tsh,shc->tc", share, mapped) / conv.heads + conv.bias + term([])


def dense_gen(conv: GENConv, x: Tensor, adjacency: Tensor, term: Term) -> Tensor:
    """Softmax aggregation of relu(x) + eps, plus x, then the MLP; the maps around it where widths differ."""
    mapped = conv.lin_src(x) if hasattr(conv, "lin_src") else x
    message = (mapped.relu() + conv.eps).expand(len(x), -1, -1)
    share = message.masked_fill(adjacency[..., None] == 0, -torch.inf).softmax(1).nan_to_num(0.0)
    root = conv.lin_dst(x) if hasattr(conv, "lin_dst") else mapped
    return conv.mlp((share * message).sum(1) + root + term([]))


def dense_sgc(conv: SGConv, x: Tensor, adjacency: Tensor, term: Term) -> Tensor:
    states = [x @ conv.lin.weight.T]
    for _ in range(conv.K):
        states.append(gcn_matrix(adjacency) @ states[-1] + term(states))
    return states[-1] + conv.lin.bias


def dense_tag(conv: TAGConv, x: Tensor, adjacency: Tensor, term: Term) -> Tensor:
    """Horner's scheme: the linear maps first, so that a hop propagates what the layer puts out."""
    plain_root = adjacency.sum(1).rsqrt()  # TAGConv adds no self-loops, but keeps those that are there
    plain_root[plain_root.isinf()] = 0
    matrix = plain_root[:, None] * adjacency * plain_root
    maps = [lin(x) for lin in conv.lins]
    states = [maps[-1]]
    for k in range(1, conv.K + 1):
        states.append(matrix @ states[-1] + term(states) + maps[conv.K - k])
    return states[-1] + conv.bias


def dense_cheb(conv: ChebConv, x: Tensor, adjacency: Tensor, term: Term) -> Tensor:
    """Clenshaw's scheme."""
    matrix = cheb_matrix(adjacency)
    maps = [lin(x) for lin in conv.lins]
    hops = len(maps) - 1
    states = [maps[-1]]
    for k in range(1, hops + 1):
        older = states[-2] if k > 1 else torch.zeros_like(states[0])
        times = 1 if k == hops else 2
        states.append(times * (matrix @ states[-1] + term(states)) - older + maps[hops - k])
    return states[-1] + conv.bias


def dense_appnp(conv: APPNP, x: Tensor, adjacency: Tensor, term: Term) -> Tensor:
    states: list[Tensor] = []  # T(0) is the layer's input, which the buffer reads anyway
    state = x
    for _ in range(conv.K):
        state = (1 - conv.alpha) * (gcn_matrix(adjacency) @ state + term(states)) + conv.alpha * x
        states.append(state)
    return state


def mlp(width: int, out: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 7), nn.Tanh(), nn.Linear(7, out))


CONVS: dict[str, tuple[Callable[[int, int], nn.Module], Callable[..., Tensor]]] = {
    "GCN": (GCNConv, dense_gcn),
    "SAGE": (SAGEConv, dense_sage),
    "GraphConv": (GraphConv, dense_graphconv),
    "GIN": (lambda i, o: GINConv(mlp(i, o), train_eps=True), dense_gin),
    "GAT": (lambda i, o: GATConv(i, o, heads=3, concat=False), dense_gat),
    "GEN": (GENConv, dense_gen),
    "SGC": (lambda i, o: SGConv(i, o, K=3), dense_sgc),
    "TAG": (lambda i, o: TAGConv(i, o, K=3), dense_tag),
    "Cheb": (lambda i, o: ChebConv(i, o, K=4), dense_cheb),
    "Cheb2": (lambda i, o: ChebConv(i, o, K=2), dense_cheb),
    "APPNP": (lambda i, o: APPNP(K=3, alpha=0.2), dense_appnp),
}


class Stack(nn.Module):
    """Three layers with tanh between."""

    def __init__(self, build: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        self.convs = nn.ModuleList([build(FEATURES, HIDDEN), build(HIDDEN, HIDDEN), build(HIDDEN, CLASSES)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs[:-1]:
            x = conv(x, edge_index).tanh()
        return self.convs[-1](x, edge_index)


@lru_cache
def attached(name: str, config: BufferConfig = BufferConfig()) -> BufferedGNN:  # noqa: B008 (frozen)
    base = seeded(lambda: Stack(CONVS[name][0])).double()
    data = small_graph()
    return shake(aggbuffer.attach(base, (data.x.double(), data.edge_index), config))


def dense_answer(model: BufferedGNN, name: str, x: Tensor, adjacency: Tensor) -> Tensor:
    """The whole model of ``attached(name)``, with every aggregation corrected, by matrices alone."""
    scale = inverse(adjacency)
    blocks = iter(model.blocks)
    hidden = [x]

    def term(states: list[Tensor]) -> Tensor:
        block = next(blocks)
        out = torch.cat([*hidden, *states], dim=1) @ block.weight
        return scale @ (out if block.bias is None else out + block.bias)

    for i, conv in enumerate(model.base.convs):
        out = CONVS[name][1](conv, hidden[-1], adjacency, term)
        hidden.append(out if i == 2 else out.tanh())
    assert next(blocks, None) is None
    return hidden[-1]


@pytest.mark.parametrize("name", CONVS)
@settings(max_examples=30, deadline=None)
@given(graph=graphs())
@torch.no_grad()
def test_a_whole_model_equals_dense_algebra(name: str, graph: tuple[Tensor, Tensor]) -> None:
    x, edges = graph
    model = attached(name)
    expected = dense_answer(model, name, x, dense(edges, len(x)))
    torch.testing.assert_close(model(x, edges), expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", ["GCN", "GIN", "SGC"])
@settings(max_examples=10, deadline=None)
@given(graph=graphs())
@torch.no_grad()
def test_a_bias_is_inside_the_degree_normalisation(name: str, graph: tuple[Tensor, Tensor]) -> None:
    x, edges = graph
    model = attached(name, BufferConfig(bias=True))
    expected = dense_answer(model, name, x, dense(edges, len(x)))
    torch.testing.assert_close(model(x, edges), expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", ["GCN", "GIN", "SGC", "Cheb"])
@settings(max_examples=10, deadline=None)
@given(graph=graphs())
@torch.no_grad()
def test_the_site_output_adds_once_to_the_output(name: str, graph: tuple[Tensor, Tensor]) -> None:
    x, edges = graph
    model = attached(name, BufferConfig(site="output"))
    scale, hidden = inverse(dense(edges, len(x))), [x]
    for conv, block in zip(model.base.convs, model.blocks, strict=True):
        out = conv(hidden[-1], edges) + scale @ torch.cat(hidden, dim=1) @ block.weight
        hidden.append(out.tanh())
    out = model(x, edges)
    torch.testing.assert_close(out.tanh(), hidden[-1], rtol=1e-9, atol=1e-10)


class Weighted(Stack):
    """The same with edge weights."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        for conv in self.convs[:-1]:
            x = conv(x, edge_index, edge_weight=edge_weight).tanh()
        return self.convs[-1](x, edge_index, edge_weight=edge_weight)


@pytest.mark.parametrize("name", ["GCN", "GraphConv", "SGC", "TAG", "Cheb", "APPNP"])
@torch.no_grad()
def test_edge_weights_enter_the_aggregation_but_not_the_degree(name: str) -> None:
    data = small_graph(weights=True, loops=True, directed=True)
    data.x, data.edge_weight = data.x.double(), data.edge_weight.double()
    model = shake(aggbuffer.attach(seeded(lambda: Weighted(CONVS[name][0])).double(), data))
    expected = dense_answer(model, name, data.x, dense(data.edge_index, 14, data.edge_weight))
    torch.testing.assert_close(model.run(data), expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", [name for name in CONVS if not name.startswith("Cheb")])  # PyG's Cheb takes no CSR
@torch.no_grad()
def test_sparse_adjacencies_give_the_same(name: str) -> None:
    doubles = name in ("GCN", "SGC", "APPNP")  # PyG's gcn_norm doubles existing self-loops on CSR input, only there
    data = small_graph(loops=not doubles, directed=True)
    model, x = attached(name), data.x.double()
    expected = dense_answer(model, name, x, dense(data.edge_index, 14))
    adjacency = as_csr(Data(x=x, edge_index=data.edge_index, edge_weight=torch.ones(data.num_edges).double())).adj_t
    torch.testing.assert_close(model(x, adjacency), expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", ["GCN", "SGC"])
@torch.no_grad()
def test_weighted_degrees_sum_edge_weights(name: str) -> None:
    data = small_graph(weights=True, loops=True, directed=True)
    base = seeded(lambda: Weighted(CONVS[name][0]))
    outputs = []
    for weighted in (False, True):
        model = shake(aggbuffer.attach(base, data, BufferConfig(weighted_degree=weighted)))
        block, aside = model.blocks[0], torch.zeros(14)
        aside.scatter_add_(0, data.edge_index[1], data.edge_weight * (data.edge_index[0] != data.edge_index[1]))
        degree = aside if weighted else (without_loops(dense(data.edge_index, 14)) != 0).sum(1).float()
        inputs = [data.x, data.x @ base.convs[0].lin.weight.T] if name == "SGC" else [data.x]
        expected = block(inputs, 1 / (degree + 1).unsqueeze(1))
        seen: list[Tensor] = []
        handle = block.register_forward_hook(lambda module, args, out, seen=seen: seen.append(out))
        outputs.append(model.run(data))
        handle.remove()
        torch.testing.assert_close(seen[0], expected)
        aggbuffer.detach(model)
    assert not torch.allclose(*outputs)


def filled(block: AggregationBuffer) -> AggregationBuffer:
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    return block


@settings(max_examples=40, deadline=None)
@given(graph=graphs(), bias=st.booleans())
@torch.no_grad()
def test_the_block_is_the_formula(graph: tuple[Tensor, Tensor], bias: bool) -> None:
    x, edges = graph
    hidden = [x, x[:, :2].sin(), x[:, 1:4].cos()]
    block = filled(AggregationBuffer([6, 2, 3], 4, bias=bias, dtype=torch.float64))
    degree = in_degree(edges, len(x))
    term = block(hidden, (1 / (degree.double() + 1)).unsqueeze(1))
    added = 0 if block.bias is None else block.bias
    expected = inverse(dense(edges, len(x))) @ (torch.cat(hidden, dim=1) @ block.weight + added)
    torch.testing.assert_close(term, expected)


@pytest.mark.parametrize(
    ("kind", "reads_all", "divides"),
    [("agg_b", True, True), ("jknet", True, False), ("single", False, True), ("residual", False, False)],
)
@torch.no_grad()
def test_the_ablations_leave_out_what_they_say(kind: str, reads_all: bool, divides: bool) -> None:
    block = filled(AggregationBuffer([3, 2], 4, block=kind))
    first, last, scale = torch.randn(5, 3), torch.randn(5, 2), torch.rand(5, 1)
    read = torch.cat([first, last], dim=1) if reads_all else last
    torch.testing.assert_close(block([first, last], scale), (scale if divides else 1) * (read @ block.weight))


@settings(max_examples=40, deadline=None)
@given(graph=graphs(loops=False), data=st.data())
@torch.no_grad()
def test_c1_and_c2_edge_aware_and_stable(graph: tuple[Tensor, Tensor], data: st.DataObject) -> None:
    x, edges = graph
    kept = torch.tensor(data.draw(st.lists(st.booleans(), min_size=edges.size(1), max_size=edges.size(1))), dtype=bool)
    block = filled(AggregationBuffer([FEATURES], 4, dtype=torch.float64))

    def term(edges: Tensor) -> Tensor:
        return block([x], (1 / (in_degree(edges, len(x)).double() + 1)).unsqueeze(1))

    full, dropped = term(edges), term(edges[:, kept])
    touched = in_degree(edges, len(x)) != in_degree(edges[:, kept], len(x))
    assert torch.equal((full != dropped).any(1), touched)  # C1: exactly the nodes that lost edges notice
    assert bool((dropped.norm(dim=1) >= full.norm(dim=1)).all())  # C2: the term grows as edges go
    if touched.any():
        assert dropped.norm() > full.norm()
    for kind in ("jknet", "residual"):  # the paper's counter-examples to C1
        blind = filled(AggregationBuffer([FEATURES], 4, block=kind, dtype=torch.float64))
        scale = [1 / (in_degree(part, len(x)).double() + 1).unsqueeze(1) for part in (edges, edges[:, kept])]
        assert torch.equal(blind([x], scale[0]), blind([x], scale[1]))


@pytest.mark.parametrize("name", ["GCN", "GIN", "GAT", "SGC", "Cheb"])
@settings(max_examples=10, deadline=None)
@given(graph=graphs(), seed=st.integers(0, 1000))
@torch.no_grad()
def test_renumbering_nodes_renumbers_answers(name: str, graph: tuple[Tensor, Tensor], seed: int) -> None:
    x, edges = graph
    model = attached(name)
    new = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    moved = torch.empty_like(x)
    moved[new] = x
    torch.testing.assert_close(model(moved, new[edges])[new], model(x, edges), rtol=1e-9, atol=1e-10)


@torch.no_grad()
def test_no_edges_and_no_nodes() -> None:
    none = torch.empty(2, 0, dtype=torch.int64)
    block = filled(AggregationBuffer([3, 2], 4))
    x = torch.randn(5, 5)
    scale = 1 / (in_degree(none, 5) + 1).unsqueeze(1)
    torch.testing.assert_close(block([x[:, :3], x[:, 3:]], scale), x @ block.weight)
    assert block([torch.empty(0, 3), torch.empty(0, 2)], torch.empty(0, 1)).shape == (0, 4)
    assert in_degree(none, 0).shape == (0,)
    model = attached("GCN")
    assert model(torch.empty(0, FEATURES, dtype=torch.float64), none).shape == (0, CLASSES)


def test_the_layers_own_aggregation_as_a_block() -> None:
    data = small_graph(loops=True, weights=True)
    gnn = Sequential("x, edge_index, edge_weight", [(GCNConv(FEATURES, CLASSES), "x, edge_index, edge_weight -> x")])
    model = aggbuffer.attach(gnn.eval(), data, BufferConfig(block="agg"))
    (weight,) = model.buffer_parameters()
    with torch.no_grad():
        weight.normal_(generator=torch.Generator().manual_seed(0))
        found = model(data.x, data.edge_index, data.edge_weight)
        twin = copy.deepcopy(gnn[0])
        twin.lin.weight += weight.t()  # two linear maps under one aggregation are one with the sum of their weights
        expected = twin(data.x, data.edge_index, data.edge_weight)
    torch.testing.assert_close(found, expected)


def test_only_gcn_layers_can_repeat_their_aggregation() -> None:
    data = small_graph()
    with pytest.raises(AggBufferError, match="is no GCNConv"):
        aggbuffer.attach(GraphSAGE(FEATURES, 8, 2, CLASSES), data, BufferConfig(block="agg"))
