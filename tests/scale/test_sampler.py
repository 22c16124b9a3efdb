"""Samples are exact, uniform, seeded, and a node's own; masks and draws, too."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor
from torch_geometric.data import Data

from aggbuffer.graph import Graph
from aggbuffer.perturb import keep_mask
from aggbuffer.scale.batch import Sampler
from aggbuffer.scale.draws import DropEdge, HashedDropout
from aggbuffer.scale.hashing import below, key_of, uniform, words
from aggbuffer.scale.sampler import in_edges
from aggbuffer.scale.source import GraphSource
from conftest import as_csr, small_graph
from helpers_fit import community_graph


def source_of(data: Data) -> GraphSource:
    return GraphSource(Graph.of(data))


def test_a_source_is_the_graph_by_target() -> None:
    for data in (small_graph(), small_graph(directed=True, loops=True), small_graph(weights=True, directed=True)):
        source, graph = source_of(data), Graph.of(data)
        target = torch.repeat_interleave(source.pointer.diff())
        assert bool((target.diff() >= 0).all())
        found = set(zip(source.column.tolist(), target.tolist(), strict=True))
        assert found == set(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
        assert torch.equal(source.degree, graph.degree)
        assert source.is_undirected == graph.is_undirected
        assert source.has_loops == bool(graph.is_loop.any())
        assert torch.equal(source.link, graph.link[source.order])
        assert source.num_links == graph.num_links
        assert torch.equal(graph.source[source.order], source.column.long())
        for name in source.edge_names:
            assert torch.equal(source.edge_values(name, slice(None)), data[name][source.order])


def test_all_in_edges_of_some_nodes() -> None:
    data = small_graph(directed=True, loops=True)
    source = source_of(data)
    nodes = torch.tensor([5, 13, 0, 7])
    found = in_edges(source, nodes)
    for place, node in enumerate(nodes.tolist()):
        mine = found.source[found.pointer[place] : found.pointer[place + 1]]
        assert sorted(mine.tolist()) == sorted(data.edge_index[0][data.edge_index[1] == node].tolist())
    ends = torch.stack([found.source, nodes[found.target()]])
    assert torch.equal(ends, data.edge_index[:, source.order[found.edge]])


def test_a_sample_is_a_set_of_in_edges_and_all_of_them_where_there_are_few() -> None:
    source = source_of(community_graph())
    nodes = torch.arange(90)
    every = in_edges(source, nodes)
    for fanout in (1, 3, 8):
        found = in_edges(source, nodes, fanout, key=7)
        counts = found.pointer.diff()
        assert torch.equal(counts, every.pointer.diff().clamp(max=fanout))
        assert found.edge.unique().numel() == found.edge.numel()  # none twice
        assert torch.equal(source.column[found.edge].long(), found.source)
        for node in range(90):
            mine = found.edge[found.pointer[node] : found.pointer[node + 1]]
            assert bool(((mine >= source.pointer[node]) & (mine < source.pointer[node + 1])).all())


def test_every_set_of_neighbours_is_equally_likely() -> None:
    """Chi-squared over all 15 pairs out of 6, with 3,000 draws: 99.99 % of fair samplers stay below 40."""
    ends = torch.tensor([[1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 0]])
    source = source_of(Data(x=torch.randn(7, 2), edge_index=ends))
    counts = dict.fromkeys(itertools.combinations(range(6), 2), 0)
    for step in range(3000):
        pair = in_edges(source, torch.tensor([0]), 2, key_of(0, step)).edge.tolist()
        counts[tuple(pair)] += 1
    expected = 3000 / 15
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 40


def test_a_sample_depends_on_key_and_node_alone() -> None:
    source = source_of(community_graph())

    def sample(nodes: Tensor, key: int) -> dict[int, list[int]]:
        found = in_edges(source, nodes, 3, key)
        parts = found.edge.tensor_split(found.pointer[1:-1])
        return {node: part.tolist() for node, part in zip(nodes.tolist(), parts, strict=True)}

    some = torch.tensor([40, 3, 17])
    together = sample(torch.arange(90), 5)
    assert sample(some, 5) == {node: together[node] for node in some.tolist()}
    assert sample(torch.arange(90), 5) == together
    assert sample(torch.arange(90), 6) != together


def test_a_batch_holds_what_reaches_its_seeds() -> None:
    data = community_graph(directed=True)
    source = source_of(data)
    seeds = torch.tensor([4, 77, 30])
    for step in range(2):  # a second batch of the same sampler is not disturbed by the first
        batch = Sampler(source, 2, None, 0, sees_rim=True).batch(seeds, step)
        assert torch.equal(batch.nodes[:3], seeds)
        assert batch.nodes.unique().numel() == batch.nodes.numel()
        assert torch.equal(batch.data.x, data.x[batch.nodes])
        assert torch.equal(batch.data.y, data.y[batch.nodes])
        assert torch.equal(batch.degree, source.degree[batch.nodes])
        first = set(in_edges(source, seeds).source.tolist()) | set(seeds.tolist())
        second = set(in_edges(source, torch.tensor(sorted(first))).source.tolist())
        assert set(batch.nodes.tolist()) == first | second
        ends = batch.nodes[batch.data.edge_index]
        wanted = torch.isin(data.edge_index[1], torch.tensor(sorted(first)))
        assert set(map(tuple, ends.t().tolist())) == set(map(tuple, data.edge_index[:, wanted].t().tolist()))


def test_a_batch_of_a_sparse_adjacency_carries_its_values() -> None:
    weighted = small_graph(weights=True, directed=True)
    batch = Sampler(source_of(as_csr(weighted)), 1, None, 0, sees_rim=False).batch(torch.tensor([8, 2]), 0)
    dense, whole = batch.data.adj_t.to_dense(), as_csr(weighted).adj_t.to_dense()
    assert torch.equal(dense[:2], whole[[8, 2]][:, batch.nodes])
    assert not bool(dense[2:].any())


def test_drop_edge_by_counting() -> None:
    data = community_graph()
    graph = Graph.of(data)
    source, target = data.edge_index
    draw = DropEdge(3, 5, 0.3)
    kept = draw.kept(source, target, slice(None))
    assert torch.equal(kept, draw.kept(target, source, slice(None)))  # both directions together
    some = torch.arange(0, 60, 7)
    assert torch.equal(draw.kept(source[some], target[some], slice(None)), kept[some])
    alone = DropEdge(3, 5, 0.3, "independent")
    assert not torch.equal(alone.kept(source, target, slice(None)), alone.kept(target, source, slice(None)))
    assert torch.equal(alone.turned().kept(target, source, slice(None)), alone.kept(source, target, slice(None)))
    assert bool(DropEdge(3, 5, 0.0).kept(source, target, slice(None)).all())
    assert not bool(DropEdge(3, 5, 1.0).kept(source, target, slice(None)).any())
    loops = torch.arange(9)
    assert bool(DropEdge(3, 5, 1.0).kept(loops, loops, slice(None)).all())
    many = torch.arange(200_000)
    share = DropEdge(0, 1, 0.3).kept(many, many + 1, slice(None)).float().mean().item()
    assert abs(share - 0.7) < 0.005
    assert keep_mask(graph, 0.3, torch.Generator()).shape == kept.shape


def test_draws_are_even_and_keys_independent() -> None:
    numbers = torch.arange(100_000)
    draws = uniform(key_of(1, 2, 3), numbers)
    counts = torch.histc(draws, 20, 0, 1)
    assert ((counts - 5000) ** 2 / 5000).sum() < 60  # 19 degrees of freedom
    other = uniform(key_of(1, 2, 4), numbers)
    assert abs(torch.corrcoef(torch.stack([draws, other]))[0, 1].item()) < 0.02
    assert abs(torch.corrcoef(torch.stack([draws[1:], draws[:-1]]))[0, 1].item()) < 0.02
    assert words(5, numbers).unique().numel() == 100_000
    assert int(below(5, 1.0, numbers).sum()) == 100_000


def test_dropout_masks_are_the_nodes_own() -> None:
    x = torch.ones(50, 21)
    nodes = torch.arange(1000, 1050)
    whole = HashedDropout.of(0, 3, 1, nodes).mask(2, x, 0.25).apply(x)
    some = torch.tensor([40, 7])
    assert torch.equal(HashedDropout.of(0, 3, 1, nodes[some]).mask(2, x[some], 0.25).apply(x[some]), whole[some])
    others = [(1, 3, 1, 2), (0, 4, 1, 2), (0, 3, 0, 2), (0, 3, 1, 1)]
    for seed, step, which, layer in others:
        assert not torch.equal(HashedDropout.of(seed, step, which, nodes).mask(layer, x, 0.25).apply(x), whole)
    assert abs((whole == 0).float().mean().item() - 0.25) < 0.05
    assert torch.equal(whole.unique(), torch.tensor([0.0, 256 / 192]))
