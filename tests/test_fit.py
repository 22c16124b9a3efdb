"""Training: what moves and what does not, when it stops, and in which states it leaves the model."""

from __future__ import annotations

import json
import logging
import math
import random
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GCNConv

import aggbuffer
from aggbuffer import BufferConfig, BufferedGNN, FitConfig, FitResult, evaluate
from aggbuffer.errors import ConfigError, GraphError, ModelError, ModelTypeError
from aggbuffer.fit import EpochRecord
from aggbuffer.graph import Graph
from aggbuffer.losses import LossTerms, StepOutputs, divergence, named
from helpers_fit import (
    CLASSES,
    FEATURES,
    NODES,
    base,
    buffered,
    community_graph,
    move,
    refused,
    same,
    targets_of,
    weights,
    with_csr,
)


def fit(model: BufferedGNN, data: Data, **options: Any) -> FitResult:
    return aggbuffer.fit(model, data, **{"progress": False, "max_epochs": 12, **options})


def scored(model: BufferedGNN, data: Data, task: str = "multiclass") -> tuple[float, float]:
    """Validation loss and accuracy, computed by the book."""
    with torch.no_grad():
        out = model.run(data)[data.val_mask]
    y = data.y[data.val_mask]
    if task == "regression":
        return 0.5 * F.mse_loss(out, y).item(), math.nan
    if task != "multiclass":
        y = y.view_as(out).float()
        return F.binary_cross_entropy_with_logits(out, y).item(), ((out > 0) == (y > 0)).float().mean().item()
    return F.cross_entropy(out, y).item(), (out.argmax(-1) == y).float().mean().item()


# What training may touch


def test_only_the_buffers_change_batch_norm_statistics_included() -> None:
    data, gnn = community_graph(), base("norm")
    with buffered(gnn, data) as model:  # compares the base's state, modes, gradients and answers at the end
        blocks = weights(model)
        result = fit(model, data, dropout=0.5, monitor="rc_loss")
        assert result.epochs == 12
        assert not same(weights(model), blocks)
        assert all(parameter.grad is None for parameter in model.buffer_parameters())
    assert int(gnn.norms[0].module.num_batches_tracked) == 40  # as many as the base was trained for


def test_a_base_that_was_put_into_training_mode_is_trained_around_and_left_in_it() -> None:
    data, gnn = community_graph(), base("norm")
    with buffered(gnn, data) as model:
        expected = fit(model, data).history
    with buffered(gnn, data) as model:
        gnn.train()  # by a user who still holds the base
        assert fit(model, data).history == expected
        assert all(module.training for module in gnn.modules())


def test_the_callers_gradient_mode_does_not_matter() -> None:
    data = community_graph()
    with buffered(base(), data) as model:
        with torch.no_grad():
            quiet = fit(model, data)
            assert not torch.is_grad_enabled()
        assert quiet.best_epoch > 0


def test_the_graph_is_not_written_to() -> None:
    data = community_graph()
    before = {key: value.clone() for key, value in data.to_dict().items()}
    with buffered(base(), data) as model:
        fit(model, data)
    assert list(data.to_dict()) == list(before)
    assert all(torch.equal(data[key], value) for key, value in before.items())


# Seeds


@pytest.mark.parametrize("options", [{}, {"dropout": 0.5, "directions": "independent"}, {"monitor": "rc_loss"}])
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(options: dict[str, Any]) -> None:
    data, runs = community_graph(), []
    for seed in (7, 7, 8):
        torch.rand(seed)  # whatever happened to the global generator before
        with buffered(base(), data) as model:
            result = fit(model, data, seed=seed, **options)
            runs.append((result, weights(model)))
    (first, bits), (again, bits_again), (other, bits_other) = runs
    assert first.history == again.history
    assert replace(first, seconds=0) == replace(again, seconds=0)
    assert same(bits, bits_again)
    assert first.history != other.history
    assert not same(bits, bits_other)


@pytest.mark.parametrize("labelled", [True, False])
def test_the_global_random_states_are_left_alone(labelled: bool) -> None:
    data = community_graph()
    if not labelled:
        del data.y, data.val_mask
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    with buffered(base(), data) as model:
        fit(model, data, dropout=0.3)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert random.getstate() == before[2]


# Stopping, and the state that is left


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "binary", "regression"])
@pytest.mark.parametrize("monitor", ["val_loss", "val_accuracy", "rc_loss"])
def test_the_state_left_is_the_best_epochs_by_every_monitor_and_for_every_task(task: str, monitor: str) -> None:
    data = community_graph()
    data.y = targets_of(task, data)
    with buffered(base(task=task), data) as model:
        untouched = scored(model, data, task)
        if (task, monitor) == ("regression", "val_accuracy"):
            with refused("monitor='val_accuracy' does not apply to regression", ConfigError):
                fit(model, data, monitor=monitor)
            return
        seen: list[list[Tensor]] = []
        result = fit(
            model, data, monitor=monitor, max_epochs=40, lr=0.03, callbacks=[lambda record: seen.append(weights(model))]
        )
        assert result.monitor == monitor
        assert [record.epoch for record in result.history] == list(range(1, 41))
        scores = [record.score for record in result.history]
        if result.best_epoch:
            assert result.best_score == scores[result.best_epoch - 1] == min(scores)
            assert result.best_epoch == 1 + scores.index(min(scores))  # the first of equals
            assert same(weights(model), seen[result.best_epoch - 1])
        else:
            assert result.best_score <= min(scores)
            assert not any(parameter.any() for parameter in model.buffer_parameters())
        loss, accuracy = scored(model, data, task)
        if monitor != "rc_loss":
            assert result.best_score == pytest.approx(loss if monitor == "val_loss" else -accuracy, abs=1e-6)
            assert result.best_score <= (untouched[0] if monitor == "val_loss" else -untouched[1]) + 1e-6
        if result.best_epoch:
            record = result.history[result.best_epoch - 1]
            assert (record.val_loss, record.val_accuracy) == pytest.approx((loss, accuracy), abs=1e-6, nan_ok=True)
        if task != "regression":
            assert model.run(data).shape == (NODES, {"multiclass": 3, "multilabel": 3, "binary": 1}[task])


def test_every_records_loss_is_made_of_its_terms() -> None:
    data = community_graph()
    with buffered(base(), data) as model:
        result = fit(model, data, strength=0.3)
        assert result.history[0].bias == pytest.approx(0, abs=1e-6)  # the first step starts at the base
        for record in result.history:
            assert record.loss == pytest.approx(record.bias + 0.3 * record.robust, rel=1e-6)
            assert record.robust > 0
        assert result.history[-1].robust < result.history[0].robust


def test_patience_counts_from_the_best_trained_epoch_while_the_base_stays_a_candidate() -> None:
    data = community_graph()
    with buffered(base(), data) as model:
        untouched = scored(model, data)[0]

        # One step away from the base, then back towards it: better all the time, and never as good as it.
        def away_and_back(step: StepOutputs) -> LossTerms:
            back = divergence(step.teacher, step.clean, "multiclass").mean()
            first = step.teacher.size(0) == NODES and not any(p.any() for p in model.buffer_parameters())
            return LossTerms(back + 0.1 * step.clean[:, 0].mean() if first else back, torch.zeros(()))

        result = fit(
            model, data, loss=away_and_back, lr=0.5, patience=10, max_epochs=2000, monitor="rc_loss", strength=0
        )
        scores = [record.score for record in result.history]
        best_trained = 1 + scores.index(min(scores))
        assert result.best_epoch == 0
        assert result.best_score < min(scores)
        assert scores[0] > 100 * min(scores)
        assert best_trained > 10  # counting from the base, it would have stopped before that
        assert (result.stopped, result.epochs) == ("patience", best_trained + 10)
        assert not any(parameter.any() for parameter in model.buffer_parameters())
        assert scored(model, data)[0] == untouched


def test_training_stops_when_patience_runs_out() -> None:
    data = community_graph()
    with buffered(base(), data) as model:
        result = fit(model, data, lr=0.1, patience=7, max_epochs=1000)
        scores = [record.score for record in result.history]
        assert result.stopped == "patience"
        assert result.epochs == 1 + scores.index(min(scores)) + 7


def test_no_epochs_leave_the_base() -> None:
    data = community_graph()
    with buffered(base(), data) as model:
        result = fit(model, data, max_epochs=0)
        assert (result.epochs, result.best_epoch, result.stopped) == (0, 0, "max_epochs")
        assert result.best_score == pytest.approx(scored(model, data)[0])
        assert not any(parameter.any() for parameter in model.buffer_parameters())


def test_a_second_fit_starts_where_the_first_ended() -> None:
    data = community_graph()
    with buffered(base(), data) as model:
        first = fit(model, data)
        bits = weights(model)
        assert fit(model, data, max_epochs=0).best_score == pytest.approx(first.best_score)
        assert same(weights(model), bits)
        assert fit(model, data, seed=1).best_score <= first.best_score + 1e-7


def test_a_result_is_json_without_nan(caplog: pytest.LogCaptureFixture) -> None:
    data = community_graph()
    with buffered(base(), data) as model:
        told = json.loads(json.dumps(fit(model, data).to_dict(), allow_nan=False))
        assert told["config"] == FitConfig(max_epochs=12, self_loops=told["config"]["self_loops"]).to_dict()
        assert len(told["history"]) == 12
        del data.y
        told = json.loads(json.dumps(fit(model, data).to_dict(), allow_nan=False))
        assert told["history"][0]["val_loss"] is None


# Without labels


@pytest.mark.parametrize("missing", [["y"], ["val_mask"], ["y", "val_mask"], ["y", "train_mask", "val_mask"]])
def test_no_labels_are_needed_and_their_absence_is_told(missing: list[str], caplog: pytest.LogCaptureFixture) -> None:
    data = community_graph()
    for key in missing:
        del data[key]
    with buffered(base(), data) as model, caplog.at_level(logging.WARNING, "aggbuffer"):
        result = fit(model, data, max_epochs=30, lr=0.03)
        assert "No labelled validation nodes" in caplog.text
        assert result.monitor == "rc_loss"
        assert result.best_epoch > 0
        assert result.history[0].score > result.best_score
        assert math.isnan(result.history[0].val_loss)
        full = community_graph()
        assert evaluate(model, full, keep=[0]).edge_removal[0].accuracy > 0


def test_asking_for_the_label_free_monitor_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    data = community_graph()
    with buffered(base(), data) as model, caplog.at_level(logging.WARNING, "aggbuffer"):
        result = fit(model, data, monitor="rc_loss")
        assert not caplog.records
        assert result.history[0].val_loss > 0  # told all the same, as there are labels


def test_the_label_free_score_is_the_loss_on_held_out_nodes_over_fixed_graphs() -> None:
    data = community_graph()
    with buffered(base(), data) as model:
        move(model)
        result = fit(model, data, monitor="rc_loss", max_epochs=0, drop_edge=1.0, strength=0.25)
        edgeless = Data(x=data.x, edge_index=data.edge_index[:, :0])
        with torch.no_grad():
            clean, perturbed = model.run(data), model.run(edgeless)
            with model.disabled():
                teacher = model.run(data)
        expected = divergence(teacher, clean, "multiclass") + 0.25 * divergence(clean, perturbed, "multiclass")
        assert result.best_score == pytest.approx(expected[data.val_mask].mean().item(), rel=1e-5)


def test_nodes_are_held_out_of_the_training_nodes_where_no_mask_says_which() -> None:
    data = community_graph()
    del data.y, data.train_mask, data.val_mask
    steps: list[StepOutputs] = []

    def spy(step: StepOutputs) -> LossTerms:
        steps.append(step)
        return named("rc")(step)

    with buffered(base(), data) as model:
        fit(model, data, loss=spy, max_epochs=1)
    trained = {tuple(step.train.tolist()) for step in steps if step.teacher.size(0) == NODES}
    held_out = [step for step in steps if step.teacher.size(0) != NODES]
    assert len(trained) == 1
    assert len(next(iter(trained))) == NODES - NODES // 10
    assert {step.teacher.size(0) for step in held_out} == {NODES // 10}


def test_the_task_comes_from_the_labels_even_where_no_mask_selects_any(caplog: pytest.LogCaptureFixture) -> None:
    data = community_graph()
    data.y = targets_of("regression", data)
    tasks: set[str] = set()

    def spy(step: StepOutputs) -> LossTerms:
        tasks.add(step.task)
        return named("rc")(step)

    with buffered(base(task="regression"), data) as model:
        del data.val_mask
        fit(model, data, loss=spy, max_epochs=1)
        assert tasks == {"regression"}
        tasks.clear()
        fit(model, data, loss=spy, max_epochs=1, task="multilabel")
        assert tasks == {"multilabel"}


# Callbacks


def test_every_callback_hears_of_every_epoch_and_any_may_stop_the_run() -> None:
    data = community_graph()
    heard: tuple[list[EpochRecord], list[EpochRecord]] = ([], [])

    def first(record: EpochRecord) -> bool:
        heard[0].append(record)
        return record.epoch == 4

    with buffered(base(), data) as model:
        result = fit(model, data, callbacks=[first, heard[1].append])
        assert result.stopped == "callback"
        assert heard == (result.history, result.history)
        assert result.epochs == 4
    with buffered(base(), data) as model:
        assert fit(model, data, callbacks=[lambda record: 1, lambda record: "stop"]).epochs == 12  # only True stops


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["callback", "perturb", "loss"])
def test_an_interrupted_fit_leaves_its_best_state_and_an_intact_base(error: type[BaseException], where: str) -> None:
    data = community_graph()
    calls, fatal = 0, 0

    def count() -> None:
        nonlocal calls
        calls += 1
        if calls == fatal:
            raise error("here")

    def perturb(graph: Graph, generator: torch.Generator) -> Data:
        if where == "perturb":
            count()
        return aggbuffer.perturb.drop_edge(graph, 0.5, generator)

    def loss(step: StepOutputs) -> LossTerms:
        if where == "loss":
            count()
        return named("rc")(step)

    def callback(record: EpochRecord) -> None:
        if where == "callback":
            count()

    options: dict[str, Any] = {"lr": 0.03, "perturb": perturb, "loss": loss, "callbacks": [callback]}
    with buffered(base(), data) as model:
        fit(model, data, max_epochs=6, **options)
        expected = weights(model)
    calls, fatal = 0, 6 if where == "callback" else 7
    with buffered(base(), data) as model:
        with pytest.raises(error, match="here"):
            fit(model, data, **options)
        assert same(weights(model), expected)
        assert all(parameter.grad is None for parameter in model.buffer_parameters())
        with torch.no_grad(), model.disabled():
            assert torch.equal(model.run(data), model.base(data.x, data.edge_index))
        fit(model, data, max_epochs=2)  # and it can be trained on


# Losses and perturbations


@pytest.mark.parametrize("task", ["multiclass", "multilabel", "binary", "regression"])
@pytest.mark.parametrize("loss", ["rc", "rc_train", "cross_entropy", "pseudo_label", "self_distillation"])
def test_every_loss_trains_every_task(loss: Any, task: str) -> None:
    data = community_graph()
    data.y = targets_of(task, data)
    with buffered(base(task=task), data) as model:
        # Without any edge in it, the perturbed graph is always the same, and the loss has to fall.
        result = aggbuffer.fit(model, data, FitConfig(loss=loss, drop_edge=1.0, max_epochs=20), progress=False)
        losses = [record.loss for record in result.history]
        assert losses[-1] < 0.95 * losses[0]
        assert all(math.isfinite(value) for value in losses)
        assert (losses[-1] > result.history[-1].bias) == loss.startswith("rc")


def test_a_custom_loss_equal_to_the_named_one_gives_the_same_bits() -> None:
    data, runs = community_graph(), []
    for options in ({"detach_target": True}, {"loss": named("rc", detach_target=True)}, {}):
        with buffered(base(), data) as model:
            runs.append((fit(model, data, **options).history, weights(model)))
    assert runs[0][0] == runs[1][0]
    assert same(runs[0][1], runs[1][1])
    assert not same(runs[0][1], runs[2][1])


def test_a_custom_perturbation_replaces_drop_edge() -> None:
    data, runs = community_graph(), []

    def lose_all(graph: Graph, generator: torch.Generator) -> Data:
        assert isinstance(generator, torch.Generator)
        return graph.subgraph(graph.is_loop)

    for options in ({"drop_edge": 1.0}, {"perturb": lose_all}):
        with buffered(base(), data) as model:
            runs.append(fit(model, data, **options).history)
    for one, other in zip(*runs, strict=True):  # equal but for rounding: the fast path knows DropEdge's graphs
        assert astuple(one) == pytest.approx(astuple(other), rel=1e-4)


def test_dropping_no_edge_leaves_nothing_to_be_robust_against() -> None:
    data = community_graph()
    with buffered(base(), data) as model:
        result = fit(model, data, drop_edge=0.0, self_loops="kept")
        assert all(record.robust < 1e-6 for record in result.history)


def test_dropout_acts_in_training_and_not_in_validation() -> None:
    data = community_graph()
    with buffered(base(), data) as model:
        dry, wet = (fit(model, data, max_epochs=1, dropout=ratio).history[0] for ratio in (0.0, 0.7))
        assert dry.bias == pytest.approx(0, abs=1e-6)
        assert wet.bias > 0.01  # the base without dropout teaches the model with it
    with buffered(base(), data) as model:
        result = fit(model, data, dropout=0.7)
        assert result.best_score == pytest.approx(scored(model, data)[0], abs=1e-6)


# Graphs and models


@pytest.mark.parametrize("kind", ["gcn", "sage"])
def test_a_csr_adjacency_trains_like_its_edge_index(kind: str) -> None:
    data, runs = community_graph(), []
    for graph in (data, with_csr(data)):
        with buffered(base(kind), data) as model:
            result = fit(model, graph)
            runs.append([(record.loss, record.val_loss) for record in result.history])
    assert np.allclose(runs[0], runs[1], atol=1e-4)


@pytest.mark.parametrize("directions", ["together", "independent"])
def test_directed_graphs_and_edge_weights(directions: Any) -> None:
    data = community_graph(directed=True)
    assert not Graph.of(data).is_undirected
    data.edge_weight = torch.rand(data.num_edges, generator=torch.Generator().manual_seed(0)) + 0.5
    plain = data.clone()
    del plain.edge_weight
    runs = []
    for graph in (data, plain):
        with buffered(base(), plain) as model:
            runs.append(fit(model, graph, directions=directions, max_epochs=40))
            robust = [record.robust for record in runs[-1].history]
            assert sum(robust[-10:]) < 0.9 * sum(robust[:10])
    assert runs[0].history != runs[1].history  # the weights were used


@pytest.mark.parametrize(
    "config", [BufferConfig(bias=True), BufferConfig(block="single"), BufferConfig(block="residual")]
)
def test_blocks_of_every_kind_train(config: BufferConfig) -> None:
    data = community_graph()
    with buffered(base(), data, config) as model:
        assert any(name.endswith("bias") for name, _ in model.blocks.named_parameters()) is config.bias
        result = fit(model, data, max_epochs=25)
        assert result.history[-1].loss < result.history[0].loss
        fit(model, data, max_epochs=25, lr=0.05, monitor="rc_loss")
        assert all(parameter.any() for parameter in model.buffer_parameters())


def test_a_fitted_model_takes_a_graph_that_it_never_saw() -> None:
    data, other = community_graph(), community_graph(5, nodes=41, directed=True)
    with buffered(base(), data) as model:
        fit(model, data, monitor="rc_loss", max_epochs=30)
        with torch.no_grad():
            told, before = model(other.x, other.edge_index), model.base(other.x, other.edge_index)
        assert told.shape == (41, CLASSES)
        assert torch.isfinite(told).all()
        assert not torch.equal(told, before)
        assert evaluate(model, other, mask=torch.arange(41)).overall.count == 41
        bits = weights(model)
        assert fit(model, other).epochs == 12  # nor is it bound to the first graph
        assert len(bits) == len(weights(model))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("labelled", [True, False])
def test_models_in_other_precisions_train(dtype: torch.dtype, labelled: bool) -> None:
    data = community_graph()
    data.x = data.x.to(dtype)
    with torch.random.fork_rng(devices=[]):
        gnn = GCN(FEATURES, 8, 2, CLASSES).to(dtype).eval()
    gnn.load_state_dict(base().state_dict())
    if not labelled:
        del data.y
    with buffered(gnn, data) as model:
        result = fit(model, data, max_epochs=30)
        assert {parameter.dtype for parameter in model.buffer_parameters()} == {dtype}
        assert all(math.isfinite(record.loss) for record in result.history)
        assert result.best_epoch > 0
        assert result.history[-1].robust < result.history[0].robust


class Saturated(nn.Module):
    """A trained model that is certain of everything: its logits are in the hundreds of thousands."""

    def __init__(self, gnn: nn.Module, scale: float) -> None:
        super().__init__()
        self.gnn, self.scale = gnn, scale

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.scale * self.gnn(x, edge_index)


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_a_saturated_base_trains_without_nan(task: str) -> None:
    data = community_graph()
    data.y = targets_of(task, data)
    gnn = Saturated(base(task=task), 1e5)
    with buffered(gnn, data) as model:
        result = fit(model, data, max_epochs=30, dropout=0.5)
        assert all(math.isfinite(record.loss) and math.isfinite(record.score) for record in result.history)
        assert all(torch.isfinite(parameter).all() for parameter in model.buffer_parameters())


def test_photo_with_raw_features_and_a_badly_scaled_base_trains_without_nan() -> None:
    path = Path(__file__).parents[2] / "shared" / "data" / "Photo" / "raw" / "amazon_electronics_photo.npz"
    if not path.is_file():
        pytest.skip(f"needs the Photo benchmark; {path} is missing")
    data = _part_of_photo(path, 1500)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        gnn = GCN(data.num_features, 16, 2, 8)
    with torch.no_grad():
        for parameter in gnn.parameters():
            parameter.mul_(100)
        probabilities = gnn.eval()(data.x, data.edge_index).softmax(-1)
    assert torch.isnan(probabilities * probabilities.log()).any()  # what a divergence of probabilities would do
    with buffered(gnn, data) as model:
        result = fit(model, data, max_epochs=5, dropout=0.5)
        assert all(math.isfinite(record.loss) and math.isfinite(record.score) for record in result.history)
        assert all(torch.isfinite(parameter).all() for parameter in model.buffer_parameters())


def _part_of_photo(path: Path, nodes: int) -> Data:
    with np.load(path) as raw:
        pointer, column = raw["adj_indptr"], raw["adj_indices"]
        row = np.repeat(np.arange(len(pointer) - 1), np.diff(pointer))
        x = np.zeros((nodes, int(raw["attr_shape"][1])), dtype=np.float32)
        end = int(raw["attr_indptr"][nodes])
        x[np.repeat(np.arange(nodes), np.diff(raw["attr_indptr"][: nodes + 1])), raw["attr_indices"][:end]] = raw[
            "attr_data"
        ][:end]
        y = torch.from_numpy(raw["labels"][:nodes]).long()
    linked = (row < nodes) & (column < nodes) & (row != column)
    ends = torch.from_numpy(np.stack([row[linked], column[linked]])).long()
    edge_index = torch.unique(torch.cat([ends, ends.flip(0)], dim=1), dim=1)
    part = torch.arange(nodes) % 10
    return Data(x=torch.from_numpy(x), edge_index=edge_index, y=y, train_mask=part == 0, val_mask=part == 1)


# What is refused


def _mask(*nodes: int) -> Tensor:
    mask = torch.zeros(NODES, dtype=torch.bool)
    mask[list(nodes)] = True
    return mask


Change = Callable[[Data], object]

BAD_INPUT: dict[str, tuple[Change, dict[str, Any], type[Exception], str]] = {
    "unknown setting": (lambda d: None, {"drop_edges": 0.5}, ConfigError, "no setting 'drop_edges'"),
    "drop_edge": (lambda d: None, {"drop_edge": 1.5}, ConfigError, r"drop_edge must be in \[0, 1\]"),
    "config of another kind": (lambda d: None, {"config": {"seed": 1}}, ConfigError, "config is a dict; expected a"),
    "NaN features": (lambda d: d.x.fill_(math.nan), {}, GraphError, "NaN or infinite"),
    "other features": (lambda d: d.update({"x": torch.zeros(NODES, 9)}), {}, GraphError, "9 features per node"),
    "edges out of range": (lambda d: d.edge_index.fill_(NODES), {}, GraphError, "refers to node 90"),
    "empty train mask": (lambda d: d.train_mask.fill_(False), {}, GraphError, "train_mask is empty"),
    "empty val mask": (lambda d: d.val_mask.fill_(False), {}, GraphError, "val_mask is empty"),
    "overlap": (lambda d: d.val_mask.fill_(True), {}, GraphError, "train_mask and val_mask share 30 nodes"),
    "short mask": (lambda d: d.update({"val_mask": d.val_mask[:-1]}), {}, GraphError, "bool mask of length 90"),
    "node numbers": (lambda d: None, {"val_mask": torch.tensor([NODES])}, GraphError, "expected 0 to 89"),
    "twice": (lambda d: None, {"train_mask": torch.tensor([1, 1])}, GraphError, "names some node twice"),
    "missing train mask": (lambda d: None, {"train_mask": "training"}, GraphError, "no 'training'; set data.training"),
    "missing val mask": (lambda d: None, {"val_mask": "validation"}, GraphError, "no 'validation'"),
    "nothing to train on": (
        lambda d: d.__delattr__("train_mask"),
        {"val_mask": torch.arange(NODES)},
        GraphError,
        "leaves none to train on",
    ),
    "label too high": (lambda d: d.y.fill_(3), {}, GraphError, "labels from 3 to 3, but the model has 3 outputs"),
    "unlabelled validation": (lambda d: d.y.fill_(-1), {}, GraphError, "labels from -1 to -1"),
    "labels too few": (lambda d: d.update({"y": d.y[:-1]}), {}, GraphError, "one row for each of 90 nodes"),
    "no labels to train on": (
        lambda d: d.__delattr__("y"),
        {"config": FitConfig(loss="cross_entropy")},
        ConfigError,
        "needs data.y",
    ),
    "no nodes to train on": (
        lambda d: d.__delattr__("train_mask"),
        {"config": FitConfig(loss="cross_entropy")},
        ConfigError,
        "needs data.y, a train_mask and a val_mask",
    ),
    "no folder": (
        lambda d: None,
        {"checkpoint": "/no/such/folder/file"},
        aggbuffer.AggBufferError,
        "cannot be written",
    ),
    "no path": (lambda d: None, {"checkpoint": "/"}, aggbuffer.AggBufferError, "is a folder; name a file"),
    "no interval": (lambda d: None, {"checkpoint_every": "often"}, ConfigError, "checkpoint_every must be a number"),
    "other nodes": (
        lambda d: None,
        {"perturb": lambda graph, generator: Data(x=torch.zeros(3, FEATURES), edge_index=graph.data.edge_index)},
        ConfigError,
        r"whose x is \[3, 6\]; expected the features of the same nodes, \[90, 6\]",
    ),
    "no nodes": (
        lambda d: None,
        {"perturb": lambda graph, generator: Data(edge_index=graph.data.edge_index)},
        ConfigError,
        "whose x is a NoneType",
    ),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_refused_and_leaves_the_model_as_it_was(name: str) -> None:
    change, options, kind, words = BAD_INPUT[name]
    good = community_graph()
    with buffered(base(), good) as model:
        move(model)
        bits, data = weights(model), community_graph()
        change(data)
        with refused(words, kind):  # type: ignore[arg-type]
            fit(model, data, **options)
        assert same(weights(model), bits)
        assert all(parameter.grad is None for parameter in model.buffer_parameters())


def test_unlabelled_nodes_outside_the_masks_are_fine() -> None:
    data = community_graph()
    data.y[data.test_mask] = -1
    with buffered(base(), data) as model:
        expected = fit(model, community_graph()).history
    with buffered(base(), data) as model:
        assert fit(model, data).history == expected
        data.y[data.train_mask] = 77  # no label of a training node is used
        model.base.eval()
    with buffered(base(), data) as model:
        assert fit(model, data).history == expected


def test_masks_may_be_given_in_any_form() -> None:
    data, bare = community_graph(), community_graph()
    train, val = data.train_mask, data.val_mask
    del bare.train_mask, bare.val_mask
    with buffered(base(), data) as model:
        expected = fit(model, data).history
    bare.fold = train
    for options in (
        {"train_mask": train, "val_mask": val},
        {"train_mask": train.nonzero().squeeze(-1), "val_mask": val.nonzero().squeeze(-1)},
        {"train_mask": "fold", "val_mask": val},
    ):
        with buffered(base(), data) as model:
            assert fit(model, bare, **options).history == expected


def test_inference_mode_is_no_obstacle_but_a_graph_made_in_it_is() -> None:
    data, gnn = community_graph(), base()
    with torch.inference_mode():
        model = aggbuffer.attach(gnn, data)
        result = fit(model, data, max_epochs=2)
        made = data.clone()
    assert result.epochs == 2
    with refused(r"made in inference mode, .*data.clone\(\)", GraphError):
        fit(model, made)
    assert fit(model, made.clone(), max_epochs=2).epochs == 2
    aggbuffer.detach(model)


@pytest.mark.parametrize("reentrant", [True, False])
def test_layers_that_run_again_in_the_backward_pass_are_refused(reentrant: bool) -> None:
    class Thrifty(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = GCNConv(FEATURES, 8), GCNConv(8, CLASSES)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = self.first(x, edge_index).relu()
            if not h.requires_grad:
                return self.second(h, edge_index)
            return checkpoint(self.second, h, edge_index, use_reentrant=reentrant)  # type: ignore[no-any-return]

    data = community_graph()
    with buffered(Thrifty().eval(), data) as model:
        move(model)
        before = weights(model)
        with refused("gradients could not be computed .*torch.utils.checkpoint", ModelError):
            fit(model, data)
        assert same(weights(model), before)


def test_what_carries_no_active_buffers_is_refused() -> None:
    data = community_graph()
    with refused("The model is a GCN; expected what aggbuffer.attach returns", ModelTypeError):
        fit(base(), data)  # type: ignore[arg-type]
    with buffered(base(), data) as model, model.disabled(), refused("detached or disabled", ModelError):
        fit(model, data)
    with refused("detached or disabled", ModelError):
        fit(model, data)


def test_a_base_that_answers_nan_is_refused() -> None:
    data = community_graph()
    gnn = Saturated(base(), 1.0)
    with buffered(gnn, data) as model:
        gnn.scale = math.nan
        with refused("outputs on this graph hold NaN", ModelError):
            fit(model, data)
        gnn.scale = 1.0


def test_a_diverging_run_says_so_and_leaves_the_best_state() -> None:
    data = community_graph()
    with buffered(base(), data) as model:
        with refused("The loss became .* in epoch .*; lower lr", ModelError):
            fit(model, data, lr=1e38, max_epochs=100)
        assert not any(parameter.any() for parameter in model.buffer_parameters())


# Progress


def test_a_progress_bar_leaves_the_random_state_of_python_alone() -> None:
    code = (
        "import io, random, sys\n"
        "class Terminal(io.StringIO):\n"
        "    isatty = lambda self: True\n"
        "from helpers_fit import base, community_graph\n"
        "import aggbuffer\n"
        "data, sys.stderr = community_graph(), Terminal()\n"
        "model, state = aggbuffer.attach(base(), data), random.getstate()\n"
        "assert 'rich.style' not in sys.modules\n"  # which draws a number when it is imported
        "aggbuffer.fit(model, data, max_epochs=2)\n"
        "assert 'rich.style' in sys.modules\n"
        "assert random.getstate() == state\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_progress_is_told_on_standard_error_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    data = community_graph()
    with buffered(base(), data) as model:
        fit(model, data, progress=False)
        fit(model, data, progress=None)  # no terminal here
        assert capsys.readouterr() == ("", "")
        result = fit(model, data, progress=True)
        out, err = capsys.readouterr()
        assert out == ""
        first = result.history[0]
        told, pace = err.split(" %, ")
        assert told == (
            f"epoch 1/12: bias {first.bias:.4f} robust {first.robust:.4f} "
            f"val {first.val_loss:.4f} acc {100 * first.val_accuracy:.2f}"
        )
        assert re.fullmatch(r"\d+(\.\d)? epochs/s, at most 0:\d\d left\n", pace)
        fit(model, data, progress=True, monitor="rc_loss")
        assert "held-out" in capsys.readouterr().err


def test_progress_of_a_regression_has_no_accuracy(capsys: pytest.CaptureFixture[str]) -> None:
    data = community_graph()
    data.y = targets_of("regression", data)
    with buffered(base(task="regression"), data) as model:
        fit(model, data, progress=True)
        assert "nan" not in capsys.readouterr().err


def test_fitting_pays_on_a_graph_that_loses_its_edges() -> None:
    """The one test of what it is all for, on a small scale: more agreement with itself as edges go."""
    data = community_graph()
    with buffered(base(), data) as model:
        before = evaluate(model, data, mask=torch.arange(NODES), repeats=5)
        fit(model, data, max_epochs=150, strength=1.0)
        after = evaluate(model, data, mask=torch.arange(NODES), repeats=5)

    def stable(found: aggbuffer.Evaluation, share: float) -> float:
        return (found.predictions.removed[share] == found.predictions.full).float().mean().item()

    for share in (0.5, 0.25, 0.0):
        assert stable(after, share) > stable(before, share) + 0.03
