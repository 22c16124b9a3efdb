"""Graphs: what is refused, degrees, links, subgraphs in every format, DropEdge and dropout."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCN
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csc_tensor

import aggbuffer
from aggbuffer.errors import GraphError
from aggbuffer.graph import Graph, coo, in_degree
from aggbuffer.perturb import drop_edge, dropout, keep_mask
from conftest import Footprint, as_csr, seeded, small_graph


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def changed(**values: object) -> Data:
    data = small_graph(weights=True)
    for key, value in values.items():
        data[key] = value
    return data


def with_entry(tensor: Tensor, value: float) -> Tensor:
    tensor = tensor.clone()
    tensor.view(-1)[3] = value
    return tensor


def with_edges(edges: object, nodes: int = 4) -> Data:
    return Data(x=torch.ones(nodes, 2), edge_index=torch.tensor(edges))


X, WEIGHT = small_graph().x, small_graph(weights=True).edge_weight
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "NaN features": (lambda: changed(x=with_entry(X, float("nan"))), "1 NaN or infinite entries"),
    "infinite features": (lambda: changed(x=with_entry(X, -float("inf"))), "1 NaN or infinite entries"),
    "whole-number features": (lambda: changed(x=torch.ones(14, 6, dtype=torch.int64)), "dtype torch.int64"),
    "flat features": (lambda: changed(x=torch.ones(14)), r"shape \[14\]; expected \[nodes, features\]"),
    "sparse features": (lambda: changed(x=X.to_sparse()), "to_dense"),
    "no features": (lambda: changed(x=None), "no node features"),
    "features of numpy": (lambda: changed(x=X.numpy()), "data.x is a ndarray; expected a tensor"),
    "out of range": (lambda: with_edges([[0, 1], [1, 4]]), "node 4, but data.x has 4 rows; expected 0 to 3"),
    "negative": (lambda: with_edges([[0, -1], [1, 2]]), r"negative node number \(-1\)"),
    "float edges": (lambda: with_edges([[0.0, 1.0], [1.0, 2.0]]), r"dtype torch.float32; .*long\(\)"),
    "boolean edges": (lambda: with_edges([[True, False], [False, True]]), "dtype torch.bool"),
    "transposed edges": (lambda: with_edges([[0, 1], [1, 2], [2, 3]]), r"shape \[3, 2\]; expected \[2, edges\]"),
    "flat edges": (lambda: with_edges([0, 1]), r"expected \[2, edges\]"),
    "duplicates": (lambda: with_edges([[0, 0, 0, 1], [1, 1, 1, 0]]), "2 duplicate edges; .*coalesce"),
    "a loop twice": (lambda: with_edges([[0, 1, 1], [1, 1, 1]]), "1 duplicate edges"),
    "empty": (lambda: Data(x=torch.ones(0, 2), edge_index=torch.empty(2, 0, dtype=torch.int64)), "no nodes"),
    "a single node": (lambda: with_edges([[0], [0]], nodes=1), "a single node"),
    "only self-loops": (lambda: with_edges([[0, 1], [0, 1]]), "no edge between two different nodes"),
    "no edges": (lambda: Data(x=X, edge_index=torch.empty(2, 0, dtype=torch.int64)), "no edge between"),
    "edges missing": (lambda: Data(x=X), "has no edges; set data.edge_index"),
    "two kinds of edges": (lambda: changed(adj_t=as_csr(small_graph()).adj_t), "both edge_index and adj_t"),
    "weights of other length": (
        lambda: changed(edge_weight=torch.ones(3)),
        r"edge_weight has 3 rows, but the graph has \d+",
    ),
    "NaN weights": (
        lambda: changed(edge_weight=with_entry(small_graph(weights=True).edge_weight, float("nan"))),
        "NaN",
    ),
    "attributes of other length": (lambda: changed(edge_attr=torch.ones(3, 2)), "edge_attr has 3 rows"),
    "heterogeneous": (HeteroData, "to_homogeneous"),
    "not a graph": (lambda: 7, "The graph is a int"),
    "not tensors": (lambda: ([1], [2]), "The graph is a tuple"),
    "an adjacency of other size": (
        lambda: (X[:5], as_csr(small_graph()).adj_t),
        "14 x 14; expected 5 x 5",
    ),
    "CSC": (lambda: (X, to_torch_csc_tensor(small_graph().edge_index, size=14)), "CSC layout"),
}


@pytest.mark.filterwarnings("ignore:Sparse CSC tensor support is in beta state:UserWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_sentence(name: str) -> None:
    build, message = REFUSED[name]
    gnn = seeded(lambda: GCN(6, 8, 2, 4))
    footprint = Footprint(gnn)
    with pytest.raises(GraphError, match=message) as caught:
        aggbuffer.attach(gnn, build())
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith((".", ")."))
    footprint.check()


def test_every_way_to_give_a_graph() -> None:
    data = small_graph(loops=True, directed=True)
    csr = as_csr(data).adj_t
    sparse = to_torch_coo_tensor(data.edge_index.flip(0), size=14).coalesce()
    expected = set(map(tuple, data.edge_index.t().tolist()))
    for form in (data, (data.x, data.edge_index), [data.x, data.edge_index], (data.x, csr), (data.x, sparse)):
        graph = Graph.of(form)
        assert set(zip(graph.source.tolist(), graph.target.tolist(), strict=True)) == expected
        assert (graph.num_nodes, graph.num_edges) == (14, data.num_edges)
    assert Graph.of((data.x, data.edge_index.int())).num_edges == data.num_edges


def test_degrees_count_incoming_edges_but_no_self_loops() -> None:
    edges = torch.tensor([[0, 1, 2, 2, 0], [1, 1, 1, 3, 2]])
    data = Data(x=torch.ones(5, 1), edge_index=edges)
    assert Graph.of(data).degree.tolist() == [0, 2, 1, 1, 0]
    assert in_degree(edges, 5, flow="target_to_source").tolist() == [2, 0, 2, 0, 0]
    weight = torch.tensor([0.5, 9.0, 2.0, 1.0, 4.0], dtype=torch.float64)
    assert in_degree(edges, 5, weight=weight).tolist() == [0, 2.5, 4, 1, 0]
    assert in_degree(edges, 5, weight=weight).dtype == torch.float64
    assert in_degree(as_csr(data).adj_t, 5).tolist() == [0, 2, 1, 1, 0]
    assert in_degree(to_torch_coo_tensor(edges.flip(0), size=5), 5).tolist() == [0, 2, 1, 1, 0]


def test_links() -> None:
    edges = torch.tensor([[0, 1, 2, 3, 3], [1, 0, 1, 3, 2]])
    graph = Graph.of((torch.ones(4, 1), edges))
    link = graph.link.tolist()
    assert link[0] == link[1]
    assert len(set(link)) == graph.num_links == 4
    assert not graph.is_undirected
    assert Graph.of(small_graph(loops=True)).is_undirected
    assert not Graph.of(small_graph(directed=True)).is_undirected


@pytest.mark.parametrize("form", ["edge_index", "csr", "coo"])
def test_a_subgraph_keeps_the_users_format(form: str) -> None:
    data = small_graph(weights=True, loops=True, directed=True)
    data.name = "mine"
    if form != "edge_index":
        weight, edges = data.edge_weight, data.edge_index
        del data.edge_weight, data.edge_index
        whole = Data(x=data.x, edge_index=edges, edge_weight=weight)
        if form == "csr":
            data.adj_t = as_csr(whole).adj_t
        else:
            data.adj_t = to_torch_coo_tensor(edges.flip(0), weight, size=14).coalesce()
    else:
        data.edge_attr = torch.randn(data.num_edges, 2)
        data.edge_label_index = data.edge_index.clone()  # of the shape [2, E], as link prediction leaves behind
    graph = Graph.of(data)
    kept = torch.rand(graph.num_edges, generator=rng()) < 0.5
    part = graph.subgraph(kept)
    again = Graph.of(part)
    assert torch.equal(again.source, graph.source[kept])
    assert torch.equal(again.target, graph.target[kept])
    assert part.name == "mine"
    assert part.y is data.y
    assert part.train_mask is data.train_mask
    if form == "edge_index":
        assert torch.equal(part.edge_weight, data.edge_weight[kept])
        assert torch.equal(part.edge_attr, data.edge_attr[kept])
        assert torch.equal(part.edge_label_index, data.edge_label_index[:, kept])
    else:
        assert part.adj_t.layout == data.adj_t.layout
        assert torch.equal(coo(part.adj_t)[2], coo(data.adj_t)[2][kept])
    assert graph.num_edges == Graph.of(data).num_edges  # the user's data is as it was
    assert torch.equal(graph.subgraph(torch.ones_like(kept)).x, data.x)
    nothing = graph.subgraph(torch.zeros_like(kept))
    assert coo(nothing.edge_index if form == "edge_index" else nothing.adj_t)[0].numel() == 0


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), share=st.floats(0, 1), loops=st.booleans(), directed=st.booleans())
def test_drop_edge_keeps_directions_together_and_self_loops(
    seed: int, share: float, loops: bool, directed: bool
) -> None:
    graph = Graph.of(small_graph(seed, loops=loops, directed=directed))
    kept = keep_mask(graph, share, rng(seed))
    assert bool(kept[graph.is_loop].all())
    pairs = {(s, t): k for s, t, k in zip(graph.source.tolist(), graph.target.tolist(), kept.tolist(), strict=True)}
    assert all(pairs.get((t, s), k) == k for (s, t), k in pairs.items())
    assert torch.equal(kept, keep_mask(graph, share, rng(seed)))


@pytest.mark.parametrize("directions", ["together", "independent"])
def test_drop_edge_at_its_ends_and_in_the_mean(directions: str) -> None:
    graph = Graph.of(small_graph(nodes=300, edges=4000, loops=True))
    randomness = torch.get_rng_state()
    assert bool(keep_mask(graph, 0.0, rng(), directions=directions).all())
    assert torch.equal(keep_mask(graph, 1.0, rng(), directions=directions), graph.is_loop)
    shares = torch.stack([keep_mask(graph, 0.3, rng(i), directions=directions)[~graph.is_loop] for i in range(20)])
    assert abs(float(shares.float().mean()) - 0.7) < 0.01
    assert not torch.equal(shares[0], shares[1])
    part = drop_edge(graph, 0.3, rng(), directions=directions)
    assert Graph.of(part).is_undirected == (directions == "together")
    assert torch.equal(torch.get_rng_state(), randomness)


def test_dropout_keeps_the_mean_and_repeats() -> None:
    randomness = torch.get_rng_state()
    x = torch.ones(501, 37)
    for ratio in (0.1, 0.5, 0.7):
        out = dropout(x, ratio, rng(1))
        assert abs(float((out == 0).float().mean()) - ratio) < 0.01
        assert abs(float(out.mean()) - 1) < 0.02
        assert out[out != 0].unique().numel() == 1
        assert torch.equal(out, dropout(x, ratio, rng(1)))
        assert not torch.equal(out, dropout(x, ratio, rng(2)))
    assert torch.equal(dropout(x, 0.0, rng()), x)
    half = dropout(x.bfloat16().requires_grad_(), 0.5, rng())
    assert half.dtype == torch.bfloat16
    half.sum().backward()
    assert dropout(torch.empty(0, 3), 0.5, rng()).shape == (0, 3)
    assert torch.equal(torch.get_rng_state(), randomness)


def test_dropout_almost_everywhere_keeps_its_mean() -> None:
    x = torch.ones(2000, 100)
    assert abs(float(dropout(x, 0.999, rng(1)).mean()) - 1) < 0.2
