"""Accuracy and macro-F1 against scikit-learn, and the paired bootstrap against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, root_mean_squared_error
from torch import Tensor

from aggbuffer.scores import paired_bootstrap, predict, score


def matrices(values: st.SearchStrategy[int]) -> st.SearchStrategy[tuple[Tensor, Tensor]]:
    """Two matrices of one shape."""

    def of(shape: tuple[int, int]) -> st.SearchStrategy[Tensor]:
        rows = st.lists(st.lists(values, min_size=shape[1], max_size=shape[1]), min_size=shape[0], max_size=shape[0])
        return rows.map(torch.tensor)

    return st.tuples(st.integers(1, 12), st.integers(1, 4)).flatmap(lambda shape: st.tuples(of(shape), of(shape)))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=30))
def test_multiclass_scores_are_those_of_scikit_learn(rows: list[tuple[int, int]]) -> None:
    predicted, labels = torch.tensor(rows).unbind(1)
    found = score(predicted, labels, "multiclass")
    assert found.accuracy == pytest.approx(accuracy_score(labels, predicted))
    assert found.macro_f1 == pytest.approx(f1_score(labels, predicted, average="macro"))
    assert found.count == len(rows)


@settings(max_examples=60, deadline=None)
@given(matrices(st.integers(0, 1)))
def test_multilabel_scores_are_those_of_scikit_learn(pair: tuple[Tensor, Tensor]) -> None:
    predicted, labels = pair
    found = score(predicted.bool(), labels.float(), "multilabel")
    assert found.accuracy == pytest.approx(accuracy_score(labels.flatten(), predicted.flatten()))
    if labels.size(1) == 1:  # two classes
        expected = f1_score(labels.flatten(), predicted.flatten(), average="macro")
    else:  # labels that nobody has and nobody predicts do not count
        present = (labels + predicted).any(0)
        by_label = f1_score(labels, predicted, average=None, zero_division=0.0)
        expected = by_label[present].mean() if present.any() else 0.0
    assert found.macro_f1 == pytest.approx(expected)


@settings(max_examples=30, deadline=None)
@given(matrices(st.integers(-5, 5)))
def test_regression_is_scored_by_its_rmse(pair: tuple[Tensor, Tensor]) -> None:
    predicted, labels = pair[0].float() / 3, pair[1].float()
    found = score(predicted, labels, "regression")
    expected = root_mean_squared_error(labels.flatten().double(), predicted.flatten().double())
    assert found.rmse == pytest.approx(expected, rel=1e-6)
    assert math.isnan(found.accuracy)
    assert math.isnan(found.macro_f1)


def test_no_nodes_have_no_score() -> None:
    empty = torch.empty(0, dtype=torch.int64)
    found = score(empty, empty, "multiclass")
    assert (found.count, math.isnan(found.accuracy), math.isnan(found.macro_f1)) == (0, True, True)
    for interval in paired_bootstrap(empty[None], empty[None], empty, "multiclass", resamples=5, level=0.9, seed=0):
        assert math.isnan(interval.difference)


def test_predictions_follow_the_task() -> None:
    logits = torch.tensor([[0.2, -0.1, 3.0], [-1.0, -2.0, -3.0]])
    assert predict(logits, "multiclass").tolist() == [2, 0]
    assert predict(logits, "multilabel").tolist() == [[True, False, True], [False] * 3]
    assert torch.equal(predict(logits, "regression"), logits)


def simulated(draw: torch.Generator, nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Labels, and two models that are right on 70 % and 75 % of nodes, mostly on the same ones."""
    labels = torch.randint(3, (nodes,), generator=draw)
    luck = torch.rand(nodes, generator=draw)
    other = torch.where(torch.rand(nodes, generator=draw) < 0.8, luck, torch.rand(nodes, generator=draw))
    wrong = (labels + 1) % 3
    return labels, torch.where(luck < 0.7, labels, wrong), torch.where(other < 0.75, labels, wrong)


def test_the_interval_covers_the_true_difference_as_often_as_it_says() -> None:
    draw = torch.Generator().manual_seed(0)
    trials, covered = 250, 0
    for trial in range(trials):
        labels, before, after = simulated(draw, 150)
        accuracy, _ = paired_bootstrap(
            before[None], after[None], labels, "multiclass", resamples=200, level=0.95, seed=trial
        )
        covered += accuracy.low <= 0.05 <= accuracy.high
    assert 0.91 <= covered / trials <= 0.985


def test_pairing_narrows_the_interval() -> None:
    labels, before, after = simulated(torch.Generator().manual_seed(0), 400)
    accuracy, _ = paired_bootstrap(before[None], after[None], labels, "multiclass", resamples=400, level=0.95, seed=0)
    unpaired = 2 * 1.96 * math.sqrt((0.7 * 0.3 + 0.75 * 0.25) / 400)
    assert 0.3 * unpaired < accuracy.high - accuracy.low < 0.85 * unpaired


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 40), st.sampled_from(["multiclass", "multilabel", "regression"]))
def test_the_interval_holds_the_difference_of_the_scores_and_follows_from_the_seed(
    seed: int, nodes: int, task: str
) -> None:
    draw = torch.Generator().manual_seed(seed)
    if task == "multiclass":
        before, after, labels = (torch.randint(3, (nodes,), generator=draw) for _ in range(3))
    elif task == "multilabel":
        before, after, labels = (torch.rand(nodes, 3, generator=draw) > 0.5 for _ in range(3))
    else:
        before, after, labels = (torch.randn(nodes, 2, generator=draw) for _ in range(3))

    def run() -> list[tuple[float, float, float]]:
        found = paired_bootstrap(before[None], after[None], labels, task, resamples=130, level=0.99, seed=seed)  # type: ignore[arg-type]
        return [(i.difference, i.low, i.high) for i in found]

    (difference, low, high), f1 = run()
    was, now = (score(p, labels, task) for p in (before, after))  # type: ignore[arg-type]
    if task == "regression":
        assert difference == pytest.approx(was.rmse**2 - now.rmse**2)
        assert all(math.isnan(value) for value in f1)
    else:
        assert difference == pytest.approx(now.accuracy - was.accuracy)
        assert f1[0] == pytest.approx(now.macro_f1 - was.macro_f1)
        assert np.array_equal(run(), run())
    assert low - 1e-12 <= difference <= high + 1e-12


def test_draws_of_removed_edges_are_averaged_within_a_node() -> None:
    labels = torch.zeros(50, dtype=torch.int64)
    before = torch.ones(2, 50, dtype=torch.int64)
    after = torch.stack([torch.zeros(50, dtype=torch.int64), torch.ones(50, dtype=torch.int64)])
    accuracy, _ = paired_bootstrap(before, after, labels, "multiclass", resamples=70, level=0.95, seed=0)
    # Every node gained exactly half a point, so nothing is left to chance.
    assert (accuracy.difference, accuracy.low, accuracy.high) == pytest.approx((0.5, 0.5, 0.5))
