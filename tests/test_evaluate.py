"""Groups and edge removal against slow, literal definitions; what evaluation leaves as it was."""

from __future__ import annotations

import json
import math
import random
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import aggbuffer
from aggbuffer import BufferedGNN, Evaluation, evaluate
from aggbuffer.errors import ConfigError, GraphError, ModelError, ModelTypeError
from aggbuffer.evaluate import extreme_thirds, plain
from aggbuffer.text import html_table, markdown_table
from helpers_fit import CLASSES, FEATURES, NODES, base, buffered, community_graph, move, refused, targets_of, with_csr


class Lookup(nn.Module):
    """Not a GNN at all: answers what it was told, whatever the graph."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.logits


class Counter(nn.Module):
    """Tells each node's number of incoming messages, self-loops among them, as a one-hot class."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        count = torch.bincount(edge_index[1], minlength=len(x))
        return torch.nn.functional.one_hot(count.clamp(max=7), 8).float()


@st.composite
def labelled_graphs(draw: st.DrawFn) -> Data:
    """Directed edges, self-loops, isolated nodes, unlabelled nodes outside the mask."""
    nodes = draw(st.integers(2, 14))
    pairs = [(s, t) for s in range(nodes) for t in range(nodes)]
    edges = draw(st.sets(st.sampled_from(pairs), max_size=50)) | {(0, 1)}
    labels = draw(st.lists(st.integers(0, 2), min_size=nodes, max_size=nodes))
    mask = draw(st.sets(st.integers(0, nodes - 1), min_size=1))
    y = torch.tensor([label if node in mask or label else -1 for node, label in enumerate(labels)])
    index = torch.tensor(sorted(edges)).t().contiguous()
    return Data(x=torch.zeros(nodes, 1), edge_index=index, y=y, test_mask=torch.tensor(sorted(mask)))


def slow_degree(data: Data, node: int) -> int:
    return sum(1 for s, t in data.edge_index.t().tolist() if t == node and s != node)


def slow_agreement(data: Data, node: int) -> float | None:
    senders = [s for s, t in data.edge_index.t().tolist() if t == node and s != node and data.y[s] >= 0]
    return sum(bool(data.y[s] == data.y[node]) for s in senders) / len(senders) if senders else None


def check_third(members: set[int], values: dict[int, float], lowest: bool) -> None:
    """``members`` are the lowest (highest) third of the nodes that have a value; ties may fall either way."""
    assert members <= set(values)
    assert len(members) == len(values) // 3
    rest = [values[node] for node in set(values) - members]
    if members and rest:
        inside = [values[node] for node in members]
        assert max(inside) <= min(rest) if lowest else min(inside) >= max(rest)


@settings(max_examples=60, deadline=None)
@given(labelled_graphs(), st.integers(0, 5))
def test_groups_are_what_the_method_page_defines(data: Data, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    found = evaluate(Lookup(torch.randn(data.num_nodes, 3, generator=draw)), data, keep=(), seed=seed)
    nodes = data.test_mask.tolist()
    members = {name: set(found.predictions.nodes[at].tolist()) for name, at in found.predictions.groups.items()}
    degree = {node: float(slow_degree(data, node)) for node in nodes}
    agreement = {node: share for node in nodes if (share := slow_agreement(data, node)) is not None}
    assert members["overall"] == set(nodes)
    check_third(members["tail"], degree, lowest=True)
    check_third(members["head"], degree, lowest=False)
    check_third(members["heterophilous"], agreement, lowest=True)
    check_third(members["homophilous"], agreement, lowest=False)
    assert not members["tail"] & members["head"]
    assert not members["homophilous"] & members["heterophilous"]
    assert found.predictions.degree.tolist() == list(degree.values())
    assert all(
        math.isnan(share) if node not in agreement else share == pytest.approx(agreement[node])
        for node, share in zip(nodes, found.predictions.agreement.tolist(), strict=True)
    )
    for name, group in members.items():
        result = getattr(found, name)
        assert result.count == len(group)
        if group:
            right = [int(found.predictions.full[nodes.index(n)] == data.y[n]) for n in group]
            assert result.accuracy == pytest.approx(sum(right) / len(right))


def test_ties_are_broken_by_the_seed_and_not_by_node_number() -> None:
    values, chosen = torch.zeros(9), torch.zeros(9)
    for seed in range(600):
        low, high = extreme_thirds(values, seed)
        assert not set(low.tolist()) & set(high.tolist())
        chosen[low] += 1
    assert 150 < chosen.min() < chosen.max() < 250  # a third each: 200 expected, deviation 11.5
    assert torch.equal(extreme_thirds(values, 3)[0], extreme_thirds(values, 3)[0])


def test_ties_at_the_border_do_not_touch_who_is_clear_of_it() -> None:
    values = torch.tensor([1.0, 1, 0, 1, 1, 1, 1, 1, 2])
    for seed in range(30):
        low, high = extreme_thirds(values, seed)
        assert 2 in low
        assert 8 in high


def test_self_loops_count_in_no_group() -> None:
    data = community_graph()
    looped = data.clone()
    looped.edge_index = torch.cat([data.edge_index, torch.arange(0, NODES, 2).repeat(2, 1)], dim=1)
    model = Lookup(torch.randn(NODES, 3, generator=torch.Generator().manual_seed(0)))
    without, other = evaluate(model, data), evaluate(model, looped)
    assert without.to_dict() == other.to_dict()
    assert torch.equal(without.predictions.degree, other.predictions.degree)
    assert all(
        torch.equal(without.predictions.groups[g], other.predictions.groups[g]) for g in without.predictions.groups
    )


def test_keeping_everything_is_the_whole_graph_and_nothing_is_no_graph() -> None:
    data = community_graph()
    mask = data.test_mask
    with buffered(base(), data) as model:
        move(model)
        for candidate in (model.base, model):
            found = evaluate(candidate, data)
            assert list(found.edge_removal) == [1.0, 0.75, 0.5, 0.25, 0.0]
            assert plain(found.edge_removal[1.0]) == plain(found.overall)
            with torch.no_grad():
                edgeless = candidate(data.x, torch.empty(2, 0, dtype=torch.int64))
            right = (edgeless.argmax(-1) == data.y)[mask]
            assert torch.equal(found.predictions.removed[0.0][0], edgeless.argmax(-1)[mask])
            assert found.edge_removal[0.0].accuracy == pytest.approx(right.double().mean().item())
            assert found.edge_removal[0.5].deviation > 0


def test_removed_edges_are_gone_in_both_directions_and_self_loops_are_not() -> None:
    data = community_graph()
    data.edge_index = torch.cat([data.edge_index, torch.arange(NODES).repeat(2, 1)], dim=1)
    data.y = data.y % 8
    found = evaluate(Counter(), data, keep=[0.5, 0], repeats=2)
    assert (found.predictions.removed[0.0] == 1).all()  # only its own loop
    half = found.predictions.removed[0.5]
    assert half.shape == (2, 30)
    assert (half >= 1).all()
    assert (half <= found.predictions.full).all()


def test_a_repeated_score_is_the_mean_of_its_draws() -> None:
    data = community_graph()
    found = evaluate(base(), data, keep=[0.3], repeats=4)
    runs = found.predictions.removed[0.3]
    assert runs.size(0) == 4
    each = (runs == found.predictions.labels).double().mean(1)
    assert found.edge_removal[0.3].accuracy == pytest.approx(each.mean().item())
    assert found.edge_removal[0.3].deviation == pytest.approx(float(np.std(each.numpy())))


def test_the_same_seed_removes_the_same_edges_for_every_model() -> None:
    data = community_graph()
    assert evaluate(base(), data, seed=4).to_dict() == evaluate(base(), data, seed=4).to_dict()
    seen: list[list[Tensor]] = []
    for kind in ("gcn", "sage"):
        edges: list[Tensor] = []

        def spy(model: nn.Module, graph: Data, edges: list[Tensor] = edges) -> Tensor:
            edges.append(graph.edge_index)
            return model(graph.x, graph.edge_index)

        evaluate(base(kind), data, keep=[0.5], seed=4, forward=spy)
        seen.append(edges)
    assert len(seen[0]) == 4
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))


def test_modes_gradients_and_random_states_are_as_before() -> None:
    data, gnn = community_graph(), base("norm")
    gnn.train()
    gnn.norms[0].eval()  # a mode of its own
    try:
        modes = [module.training for module in gnn.modules()]
        state = {key: value.clone() for key, value in gnn.state_dict().items()}
        random_states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
        first = evaluate(gnn, data)
        assert [module.training for module in gnn.modules()] == modes
        assert all(torch.equal(gnn.state_dict()[key], value) for key, value in state.items())
        assert all(parameter.grad is None and parameter.requires_grad for parameter in gnn.parameters())
        assert torch.equal(torch.get_rng_state(), random_states[0])
        assert random.getstate() == random_states[1]
        assert np.random.get_state()[1].tolist() == random_states[2]  # noqa: NPY002
    finally:
        gnn.eval()
    assert evaluate(gnn, data).to_dict() == first.to_dict()  # it was evaluated in evaluation mode
    with buffered(gnn, data) as model:
        model.train()
        evaluate(model, data, keep=())
        assert model.training
        assert not model.base.training


def test_an_untouched_buffer_scores_as_its_base() -> None:
    data = community_graph()
    before = evaluate(base(), data)
    with buffered(base(), data) as model:
        assert evaluate(model, data).to_dict() == before.to_dict()


@pytest.mark.slow
def test_a_compiled_model_scores_as_itself() -> None:
    data = community_graph()
    with buffered(base(), data) as model:
        move(model)
        compiled = torch.compile(model, backend="eager")
        assert evaluate(compiled, data).to_dict() == evaluate(model, data).to_dict()


def test_layers_that_would_ignore_removed_edges_are_refused() -> None:
    data, gnn = community_graph(), GCN(FEATURES, 8, 2, CLASSES, cached=True).eval()
    with refused("cached=True and would ignore every change of the edges", ModelError):
        evaluate(gnn, data)
    assert all(conv._cached_edge_index is None for conv in gnn.convs)
    assert evaluate(gnn, data, keep=(1,)).overall.count == 30


def test_csr_input_scores_as_coo() -> None:
    data = community_graph()
    assert evaluate(base("sage"), with_csr(data)).to_dict() == evaluate(base("sage"), data).to_dict()


@pytest.fixture(scope="module", params=["multiclass", "multilabel", "binary", "regression"])
def found(request: pytest.FixtureRequest) -> Evaluation:
    data = community_graph()
    data.y = targets_of(request.param, data)
    return evaluate(base(task=request.param), data)


def test_an_evaluation_is_json(found: Evaluation) -> None:
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told == found.to_dict()
    assert set(told["edge_removal"]) == {"1.0", "0.75", "0.5", "0.25", "0.0"}
    key = "rmse" if found.task == "regression" else "accuracy"
    assert told["overall"][key] == getattr(found.overall, key)
    assert told["overall"]["count"] == 30


def parse_markdown(table: str) -> list[dict[str, str]]:
    header, rule, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    assert all(set(cell) <= set(":-") and len(cell) > 2 for cell in rule)
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_the_markdown_table_holds_the_scores(found: Evaluation) -> None:
    rows = {row["nodes"]: row for row in parse_markdown(found.to_markdown())}
    assert len({len(line) for line in found.to_markdown().splitlines()}) == 1  # aligned
    assert ("homophilous" in rows) == (found.task == "multiclass")
    assert {"overall", "head", "tail", "100 % of edges", "25 % of edges", "0 % of edges"} <= set(rows)
    assert rows["tail"]["count"] == str(found.tail.count) == "10"
    if found.task == "regression":
        assert float(rows["overall"]["RMSE"]) == pytest.approx(found.overall.rmse, abs=1e-4)
    else:
        assert float(rows["overall"]["accuracy"].removesuffix(" %")) == pytest.approx(
            100 * found.overall.accuracy, abs=0.006
        )
        assert float(rows["0 % of edges"]["macro-F1"].removesuffix(" %")) == pytest.approx(
            100 * found.edge_removal[0].macro_f1, abs=0.006
        )
    assert str(found) == found.to_markdown()


def test_the_html_table_says_the_same_as_the_markdown_one(found: Evaluation) -> None:
    rows = [
        ["".join(cell.itertext()) for cell in row] for row in ElementTree.fromstring(found._repr_html_()).iter("tr")
    ]
    assert [dict(zip(rows[0], row, strict=True)) for row in rows[1:]] == parse_markdown(found.to_markdown())


def test_html_tables_escape_what_they_show() -> None:
    headers, rows = ["<b>", "a & b"], [["<script>alert(1)</script>", "'\"&lt;"]]
    shown = html_table(headers, rows)
    assert "<script" not in shown
    cells = [["".join(cell.itertext()) for cell in row] for row in ElementTree.fromstring(shown).iter("tr")]
    assert cells == [headers, *rows]


def test_markdown_tables_align_cells_of_every_width() -> None:
    table = markdown_table(["a", "long header"], [["a very long cell", "1"], ["", "22"]])
    assert parse_markdown(table) == [
        {"a": "a very long cell", "long header": "1"},
        {"a": "", "long header": "22"},
    ]


def test_close_shares_of_edges_have_names_of_their_own() -> None:
    found = evaluate(base(), community_graph(), keep=np.array([0.501, 0.502, 0.07]), repeats=1)
    assert [name for name, _ in found.rows()][-3:] == ["50.1 % of edges", "50.2 % of edges", "7 % of edges"]


@pytest.mark.parametrize("mask", [torch.arange(3), torch.tensor([7])])
def test_groups_too_small_for_thirds_still_have_an_overall_score(mask: Tensor) -> None:
    found = evaluate(base(), community_graph(), mask=mask)
    assert found.overall.count == len(mask)
    assert found.tail.count == len(mask) // 3
    json.dumps(found.to_dict(), allow_nan=False)
    assert "overall" in found.to_markdown()


def _with(**changes: Any) -> Data:
    data = community_graph()
    for key, value in changes.items():
        data[key] = value
    return data


@pytest.mark.parametrize(
    ("data", "options", "kind", "words"),
    [
        (_with(), {"keep": [1.5]}, ConfigError, r"in \[0, 1\] \(got 1.5\)"),
        (_with(), {"keep": [math.nan]}, ConfigError, r"in \[0, 1\] \(got nan\)"),
        (_with(), {"keep": 0.5}, ConfigError, "keep must be a list of shares"),
        (_with(), {"keep": "all"}, ConfigError, "keep must be a list of shares"),
        (_with(), {"repeats": 0}, ConfigError, "repeats must be a whole number of at least 1"),
        (_with(), {"mask": "holdout"}, GraphError, "no 'holdout'"),
        (_with(), {"mask": torch.tensor([NODES])}, GraphError, "expected 0 to 89"),
        (_with(test_mask=torch.zeros(NODES, dtype=torch.bool)), {}, GraphError, "test_mask is empty"),
        (_with(y=None), {}, GraphError, "data.y is NoneType"),
        (_with(y=torch.arange(NODES)), {}, GraphError, "the model has 3 outputs"),
        (_with(x=torch.zeros(NODES, 9)), {}, aggbuffer.AggBufferError, "9 features per node, but the model expects 6"),
        (_with(x=torch.full((NODES, 6), math.nan)), {}, GraphError, "NaN or infinite"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(data: Data, options: Any, kind: Any, words: str) -> None:
    with refused(words, kind):
        evaluate(base(), data, **options)


def test_models_that_cannot_be_evaluated_are_refused() -> None:
    data = community_graph()
    with refused("The model is a function; expected a torch.nn.Module", ModelTypeError):
        evaluate(lambda x, edges: x, data)  # type: ignore[arg-type]
    with refused("outputs on this graph hold NaN"):
        evaluate(Lookup(torch.full((NODES, 3), math.nan)), data)
    with refused(r"expected logits of shape \[90, classes\]"):
        evaluate(Lookup(torch.zeros(3)), data)
    with buffered(base(), data) as model, refused("9 features per node, but the model was attached"):
        assert isinstance(model, BufferedGNN)
        evaluate(model, _with(x=torch.zeros(NODES, 9)))
