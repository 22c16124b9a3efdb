"""What the report measures, against the same thing worked out plainly."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from report_runs import fitted, small
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GIN, SGConv

import aggbuffer as ab
from aggbuffer import BufferedGNN
from aggbuffer.errors import GraphError
from aggbuffer.evaluate import evaluate
from aggbuffer.graph import Graph
from aggbuffer.report.bins import MOST_BINS, agreement_bins, binned, degree_bins
from aggbuffer.report.flips import LISTED, flips
from aggbuffer.report.intervals import scored, wilson
from aggbuffer.report.terms import layer_terms
from aggbuffer.report.timing import inference_times
from conftest import small_graph


def shaken(build: Any, data: Data) -> BufferedGNN:
    """A model whose buffers do something."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = ab.attach(build(data.num_features).eval(), data)
        with torch.no_grad():
            for parameter in model.buffer_parameters():
                parameter.normal_(0, 0.5)
    return model


def hooks(model: nn.Module) -> list[int]:
    return [len(part._forward_hooks) + len(part._forward_pre_hooks) for part in model.modules()]


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=300))
def test_degree_bins_hold_every_node_once(degrees: list[int]) -> None:
    bins = degree_bins(torch.tensor(degrees, dtype=torch.float32))
    assert sorted(torch.cat([at for _, at in bins]).tolist()) == list(range(len(degrees)))
    assert 1 <= len(bins) <= MOST_BINS
    lasts = [max(degrees[i] for i in at.tolist()) for _, at in bins]
    firsts = [min(degrees[i] for i in at.tolist()) for _, at in bins]
    assert all(last < first for last, first in zip(lasts, firsts[1:], strict=False))
    for (label, _), low, high in zip(bins, firsts, lasts, strict=True):
        ends = label.rstrip("+").split("–")
        assert int(ends[0]) <= low
        assert label.endswith("+") or high <= int(ends[-1])
    assert all(at.numel() >= min(10, len(degrees)) for _, at in bins)


def test_agreement_bins_hold_every_known_node_once() -> None:
    agreement = torch.tensor([math.nan, 0.0, 0.1, 0.25, 0.26, 0.5, 0.75, 0.99, 1.0, 1.0])
    bins = {label: at.tolist() for label, at in agreement_bins(agreement)}
    assert bins == {"0": [1], "1–25": [2, 3], "26–50": [4, 5], "51–75": [6], "76–99": [7], "100": [8, 9]}


def test_wilson_knows_textbook_values() -> None:
    assert wilson(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(0.0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(1.0, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)


def test_an_error_has_an_interval_around_it() -> None:
    told = scored(-torch.tensor([1.0, 4.0, 1.0, 4.0], dtype=torch.float64), "regression")
    assert told["value"] == pytest.approx(math.sqrt(2.5))
    assert told["low"] < told["value"] < told["high"]


def test_bins_add_up_to_the_evaluation(graph: Data) -> None:
    model = shaken(lambda width: GCN(width, 8, 2, 4), graph)
    before, after = evaluate(model.base, graph, keep=(1, 0.5)), evaluate(model, graph, keep=(1, 0.5))
    told = binned(before.predictions, after.predictions, "multiclass", 0.5, level=0.95)
    rows = told["degree"]["bins"]
    count = sum(row["count"] for row in rows)
    assert count == before.overall.count
    for side, evaluation in (("before", before), ("after", after)):
        full = sum(row["full"][side]["value"] * row["count"] for row in rows) / count
        less = sum(row["less"][side]["value"] * row["count"] for row in rows) / count
        assert full == pytest.approx(evaluation.overall.accuracy)
        assert less == pytest.approx(evaluation.edge_removal[0.5].accuracy)
    by_agreement = sum(row["count"] for row in told["agreement"]["bins"])
    assert by_agreement + told["agreement"]["left_out"] == count


def test_flips_are_counted_and_listed_node_by_node() -> None:
    graph = small_graph(nodes=200, edges=500)
    model = shaken(lambda width: GCN(width, 8, 2, 4), graph)
    before, after = evaluate(model.base, graph, keep=(1, 0.3)), evaluate(model, graph, keep=(1, 0.3))
    told = flips(before.predictions, after.predictions, "multiclass", 0.3)
    with torch.no_grad():
        was, now = model.base(graph.x, graph.edge_index).argmax(-1), model(graph.x, graph.edge_index).argmax(-1)
    tested = graph.test_mask
    gained = ((was != graph.y) & (now == graph.y) & tested).nonzero().squeeze(-1).tolist()
    lost = ((was == graph.y) & (now != graph.y) & tested).nonzero().squeeze(-1).tolist()
    full = told["full"]
    assert (full["gained"], full["lost"]) == (len(gained), len(lost))
    assert sorted(row[0] for row in full["listed"]["gained"]) == gained
    assert sorted(row[0] for row in full["listed"]["lost"]) == lost
    degree = Graph.of(graph).degree
    for node, at, _, true, old, new in full["listed"]["gained"]:
        assert at == degree[node]
        assert (true, old, new) == (str(int(graph.y[node])), str(int(was[node])), str(int(now[node])))
    for side, predicted in (("before", was), ("after", now)):
        matrix = torch.tensor(full["confusion"][side])
        assert int(matrix.sum()) == int(tested.sum())
        assert int(matrix.diagonal().sum()) == int((predicted == graph.y)[tested].sum())
        assert matrix[1, 2] == int(((graph.y == 1) & (predicted == 2) & tested).sum())
    assert told["less"]["kept"] == 0.3


def test_long_lists_are_cut_and_many_classes_folded_with_the_true_totals_told() -> None:
    draw = torch.Generator().manual_seed(0)
    count = 3 * LISTED
    labels = torch.randint(40, (count,), generator=draw)
    graph = Data(x=torch.randn(count, 3, generator=draw), y=labels, edge_index=torch.tensor([[0, 1], [1, 0]]))
    graph.test_mask = torch.ones(count, dtype=torch.bool)
    answers = iter([labels.roll(1), labels])

    class Says(nn.Module):
        def __init__(self, what: Tensor) -> None:
            super().__init__()
            self.what = what

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return torch.nn.functional.one_hot(self.what, 40).float()

    before, after = (evaluate(Says(what), graph, keep=(1,)).predictions for what in answers)
    full = flips(before, after, "multiclass", 1.0)["full"]
    assert full["gained"] == int((labels != labels.roll(1)).sum()) > LISTED
    assert len(full["listed"]["gained"]) == LISTED
    assert full["confusion"]["classes"][-1] == "other"
    assert len(full["confusion"]["classes"]) == 12
    assert full["confusion"]["folded"] == 29
    assert sum(map(sum, full["confusion"]["before"])) == count


def test_the_terms_of_a_gcn_are_those_of_the_formula(graph: Data) -> None:
    model = shaken(lambda width: GCN(width, 8, 2, 4), graph)
    attached = hooks(model)
    told = layer_terms(model, graph, 0.5)
    assert hooks(model) == attached
    degree = Graph.of(graph).degree
    with torch.no_grad():
        term = graph.x @ model.blocks[0].weight / (degree + 1).unsqueeze(-1)
        aggregation = model.base.convs[0](graph.x, graph.edge_index)
    for name, values in (("term", term), ("aggregation", aggregation)):
        assert _mean(told, name) == pytest.approx(float(values.norm(dim=-1).mean()), rel=1e-5)
    assert told["layers"][0]["site"] == "added to the layer's output"


def test_the_terms_of_gin_are_inside_and_those_of_sgc_reach_the_output(graph: Data) -> None:
    gin = shaken(lambda width: GIN(width, 8, 1, 4), graph)
    told = layer_terms(gin, graph, 1.0)
    assert told["layers"][0]["less"] is None
    assert "MLP" in told["layers"][0]["site"]
    source, target = graph.edge_index
    summed = graph.x + torch.zeros_like(graph.x).index_add_(0, target, graph.x[source])
    assert _mean(told, "aggregation") == pytest.approx(float(summed.norm(dim=-1).mean()), rel=1e-5)

    class Net(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.conv = SGConv(width, 4, K=3)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv(x, edge_index)

    sgc = shaken(Net, graph)
    told = layer_terms(sgc, graph, 0.5)
    with torch.no_grad():
        moved = sgc(graph.x, graph.edge_index) - sgc.base(graph.x, graph.edge_index)
    assert _mean(told, "term") == pytest.approx(float(moved.norm(dim=-1).mean()), rel=1e-4)
    assert "each hop" in told["layers"][0]["site"]


def _mean(told: dict[str, Any], name: str) -> float:
    counts = [row["count"] for row in told["bins"]]
    return float(sum(n * row[name] for n, row in zip(counts, told["layers"][0]["full"], strict=True)) / sum(counts))


def test_measuring_leaves_no_hook_behind_even_if_the_model_fails(graph: Data) -> None:
    model = shaken(lambda width: GCN(width, 8, 2, 4), graph)
    attached = hooks(model)
    with torch.no_grad():
        model.base.convs[1].lin.weight.fill_(math.nan)
    with pytest.raises(GraphError, match="NaN"):
        layer_terms(model, graph, 0.5)
    assert hooks(model) == attached


def test_inference_is_timed_with_and_without_the_buffers(graph: Data) -> None:
    model = shaken(lambda width: GCN(width, 8, 2, 4), graph)
    told = inference_times(model, graph)
    assert all(0 < told[name] < 10 for name in ("before", "plain", "after"))
    assert told["rounds"] >= 3
    with torch.no_grad():
        assert not torch.equal(model(graph.x, graph.edge_index), model.base(graph.x, graph.edge_index))


@pytest.mark.parametrize("task", ["multilabel", "regression"])
def test_other_tasks_have_flips_of_their_own(task: str, tmp_path: Path) -> None:
    record = fitted(tmp_path, small(task))
    full = record["flips"]["full"]
    assert "confusion" not in full
    assert ("labels" in full) == (task == "multilabel")
    assert full["gained"] + full["lost"] <= full["nodes"]
    if task == "regression":
        assert full["gained"] + full["lost"] > 0.9 * full["nodes"]
        assert len(full["listed"]["gained"][0][3].split()) == 3
    assert record["bins"]["agreement"]["missing"]
