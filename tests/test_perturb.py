"""What DropEdge, dropout and the nested removal of edges keep."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from aggbuffer.graph import Graph
from aggbuffer.perturb import drop_edge, dropout, keep_mask, nested_removal
from helpers_fit import community_graph, with_csr

Edge = tuple[int, int]


@st.composite
def graphs(draw: st.DrawFn) -> Data:
    """Some links in one direction, some in both, some self-loops; at least one link; weights that name their edge."""
    nodes = draw(st.integers(2, 9))
    pairs = [(s, t) for s in range(nodes) for t in range(nodes)]
    edges = draw(st.sets(st.sampled_from(pairs), max_size=30)) | {(0, 1)}
    edges |= {(t, s) for s, t in edges} if draw(st.booleans()) else set()
    order = draw(st.permutations(sorted(edges)))
    index = torch.tensor(order).t().contiguous()
    return Data(x=torch.zeros(nodes, 1), edge_index=index, edge_weight=(index[0] * 100 + index[1]).float())


def edges_of(data: Data) -> set[Edge]:
    return {(int(s), int(t)) for s, t in data.edge_index.t().tolist()}


def loops_of(edges: set[Edge]) -> set[Edge]:
    return {(s, t) for s, t in edges if s == t}


def links_of(edges: set[Edge]) -> set[Edge]:
    return {(min(s, t), max(s, t)) for s, t in edges if s != t}


def whole(edges: set[Edge], all_edges: set[Edge]) -> bool:
    """Whether every link that is left has all the directions it had."""
    left = links_of(edges)
    return {(s, t) for s, t in all_edges if s != t and (min(s, t), max(s, t)) in left} == edges - loops_of(edges)


@settings(max_examples=60, deadline=None)
@given(graphs(), st.lists(st.floats(0, 1), min_size=1, max_size=4), st.integers(1, 3), st.integers(0, 2**31))
def test_nested_removal_keeps_exactly_the_share_of_links(
    data: Data, some: list[float], repeats: int, seed: int
) -> None:
    shares = sorted({*some, 0.0, 1.0}, reverse=True)
    everything = edges_of(data)
    links = len(links_of(everything))
    before = [everything] * repeats
    for share, draws in nested_removal(Graph.of(data), shares, repeats, seed):
        kept = []
        for graph in draws:
            edges = edges_of(graph)
            assert len(links_of(edges)) == round(share * links)
            assert loops_of(edges) == loops_of(everything)
            assert whole(edges, everything)
            assert torch.equal(graph.edge_weight, (graph.edge_index[0] * 100 + graph.edge_index[1]).float())
            kept.append(edges)
        assert len(kept) == (1 if share in (0, 1) else repeats)
        kept = kept if len(kept) == repeats else kept * repeats
        assert all(now <= then for now, then in zip(kept, before, strict=True))
        before = kept


def test_the_draws_of_removed_edges_differ_and_follow_from_the_seed() -> None:
    graph = Graph.of(community_graph())

    def draws(seed: int) -> list[frozenset[Edge]]:
        return [frozenset(edges_of(data)) for _, some in nested_removal(graph, [0.5], 3, seed) for data in some]

    assert len(set(draws(0))) == 3
    assert draws(0) == draws(0)
    assert not set(draws(0)) & set(draws(1))


def test_every_link_is_as_likely_to_be_removed_as_any_other() -> None:
    data = Data(x=torch.zeros(5, 1), edge_index=torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 4]]))
    counts: Counter[Edge] = Counter()
    for _, draws in nested_removal(Graph.of(data), [0.34], 600, 0):
        for graph in draws:
            counts.update(links_of(edges_of(graph)))
    assert set(counts) == {(0, 1), (1, 2), (3, 4)}
    assert all(150 < count < 250 for count in counts.values())  # 200 expected, deviation 11.5


@settings(max_examples=60, deadline=None)
@given(graphs(), st.floats(0, 1), st.integers(0, 2**31))
def test_drop_edge_drops_both_directions_or_none_and_no_self_loop(data: Data, share: float, seed: int) -> None:
    everything = edges_of(data)
    dropped = drop_edge(Graph.of(data), share, torch.Generator().manual_seed(seed))
    edges = edges_of(dropped)
    assert edges <= everything
    assert loops_of(edges) == loops_of(everything)
    assert whole(edges, everything)
    assert torch.equal(dropped.edge_weight, (dropped.edge_index[0] * 100 + dropped.edge_index[1]).float())
    if share == 1:
        assert edges == loops_of(everything)
    if share == 0:
        assert edges == everything


@pytest.mark.parametrize("directions", ["together", "independent"])
def test_drop_edge_drops_the_share_that_it_was_asked_for(directions: str) -> None:
    graph = Graph.of(community_graph())
    generator = torch.Generator().manual_seed(0)
    kept = torch.stack([keep_mask(graph, 0.3, generator, directions=directions) for _ in range(400)])  # type: ignore[arg-type]
    assert kept.float().mean().item() == pytest.approx(0.7, abs=0.01)
    assert kept.float().mean(0).min() > 0.58  # no edge is special: deviation 0.023
    pairs = {edge: i for i, edge in enumerate(zip(graph.source.tolist(), graph.target.tolist(), strict=True))}
    agree = torch.stack([kept[:, i] == kept[:, pairs[t, s]] for (s, t), i in pairs.items()]).float().mean().item()
    assert agree == (1.0 if directions == "together" else pytest.approx(0.7**2 + 0.3**2, abs=0.02))


def test_drop_edge_is_the_same_for_a_csr_adjacency() -> None:
    data = community_graph()
    csr = with_csr(data)
    dropped = drop_edge(Graph.of(csr), 0.5, torch.Generator().manual_seed(0))
    assert dropped.adj_t.layout == torch.sparse_csr
    assert "edge_index" not in dropped
    dense = dropped.adj_t.to_dense()
    assert torch.equal(dense, dense.t())
    assert 0.3 < dense.sum() / data.num_edges < 0.7


def test_nothing_here_touches_the_users_data_or_the_global_random_state() -> None:
    data = community_graph()
    before = {key: value.clone() for key, value in data.to_dict().items()}
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    graph = Graph.of(data)
    generator = torch.Generator().manual_seed(0)
    drop_edge(graph, 0.5, generator)
    dropout(data.x, 0.5, generator)
    for _, draws in nested_removal(graph, [1, 0.5, 0], 2, 0):
        list(draws)
    assert {key: value.tolist() for key, value in data.to_dict().items()} == {k: v.tolist() for k, v in before.items()}
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.random.get_state()[1].tolist() == states[2]  # noqa: NPY002


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("ratio", [0.0, 0.2, 0.5, 0.7, 0.99])
def test_dropout_zeroes_its_share_and_keeps_the_mean(ratio: float, dtype: torch.dtype) -> None:
    x = torch.ones(301, 67, dtype=dtype)
    dropped = dropout(x, ratio, torch.Generator().manual_seed(0))
    assert dropped.dtype == dtype
    zero = dropped == 0
    assert zero.float().mean().item() == pytest.approx(ratio, abs=0.015)
    assert dropped.float().mean().item() == pytest.approx(1.0, abs=0.15 if ratio == 0.99 else 0.03)
    assert dropped[~zero].unique().numel() == 1
    assert torch.equal(x, torch.ones_like(x))


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (3, 5)])
def test_dropout_of_sizes_that_are_no_multiple_of_eight(shape: tuple[int, int]) -> None:
    x: Tensor = torch.ones(shape, requires_grad=True)
    dropped = dropout(x, 0.5, torch.Generator().manual_seed(0))
    assert dropped.shape == x.shape
    assert set(dropped.unique().tolist()) <= {0.0, 2.0}
    (gradient,) = torch.autograd.grad(dropped.sum(), x)
    assert torch.equal(gradient, dropped.detach())  # the same entries are scaled in the gradient
