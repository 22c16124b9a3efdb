"""Calls of a fitted model answer for what it is called with now, whatever has changed since the last one, and how."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GCNConv, Sequential

import aggbuffer as ab
from aggbuffer.fast.changes import Contents
from conftest import seeded
from test_fast import CHANGES, CLASSES, F_IN, MODELS, graph, moved


def called(build: Callable[[], nn.Module] = MODELS["gcn"]) -> tuple[ab.BufferedGNN, Data]:
    """A model with buffers, and a graph that it has answered for on the fast path."""
    data = graph()
    model = moved(ab.attach(seeded(build).eval(), data))
    model._inference.worth = 0
    check(model, data.x, data.edge_index)
    assert model._inference.agrees
    return model, data


def check(model: ab.BufferedGNN, *args: Any) -> None:
    """Two calls give the plain answer."""
    with torch.no_grad():
        found = [model(*args), model(*args)]
        with model.plainly():
            expected = model(*args)
    for each in found:
        torch.testing.assert_close(each, expected, rtol=1e-5, atol=1e-5)


def fused_step(model: ab.BufferedGNN, data: Data) -> None:
    optimizer = torch.optim.Adam(model.buffer_parameters(), lr=0.5, fused=True)
    model(data.x, data.edge_index).sum().backward()
    optimizer.step()


def base_data(model: ab.BufferedGNN, data: Data) -> None:
    model.base.convs[0].lin.weight.data.neg_()


def buffer_data(model: ab.BufferedGNN, data: Data) -> None:
    model.buffer_parameters()[-1].data[0, 0] += 1.0


def bias_data(model: ab.BufferedGNN, data: Data) -> None:
    model.base.convs[0].bias.data += 1.0


def features_data(model: ab.BufferedGNN, data: Data) -> None:
    data.x.data[3] *= 2


def swapped_features(model: ab.BufferedGNN, data: Data) -> None:
    data.x.numpy()[[0, 1]] = data.x.numpy()[[1, 0]]


def edges_numpy(model: ab.BufferedGNN, data: Data) -> None:
    data.edge_index.numpy()[0, :5] = 7


def written_in_inference_mode(model: ab.BufferedGNN, data: Data) -> None:
    with torch.inference_mode():
        data.x.mul_(2)
        model.buffer_parameters()[0].mul_(2)


def vectors(model: ab.BufferedGNN, data: Data) -> None:
    for seed in range(3):  # each may lie where the last one lay
        draw = torch.Generator().manual_seed(seed)
        nn.utils.vector_to_parameters(
            torch.randn(model.num_buffer_parameters, generator=draw), model.buffer_parameters()
        )
        check(model, data.x, data.edge_index)


@pytest.mark.parametrize(
    "change",
    [
        fused_step,
        base_data,
        buffer_data,
        bias_data,
        features_data,
        swapped_features,
        edges_numpy,
        written_in_inference_mode,
        vectors,
    ],
)
def test_values_may_change_where_torch_counts_no_write(change: Callable[[ab.BufferedGNN, Data], None]) -> None:
    model, data = called()
    change(model, data)
    check(model, data.x, data.edge_index)


def doubled_input(gnn: nn.Module) -> None:
    gnn.convs[0].register_forward_pre_hook(lambda module, args: (args[0] * 2, *args[1:]))


def leaky_in_place(gnn: nn.Module) -> None:
    gnn.act = nn.LeakyReLU(0.1, inplace=True)


@pytest.mark.parametrize("change", [*CHANGES, doubled_input, leaky_in_place])
def test_a_model_may_change_between_calls(change: Callable[[nn.Module], None]) -> None:
    model, data = called()
    change(model.base)
    check(model, data.x, data.edge_index)


def test_a_model_that_changes_as_it_runs_is_answered_plainly() -> None:
    class Remembers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.last = GCNConv(F_IN, CLASSES), None

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            self.last = self.conv(x, edge_index)
            return F.relu(self.last)

    data = graph()
    model = moved(ab.attach(seeded(Remembers).eval(), data))
    model._inference.worth = 0
    check(model, data.x, data.edge_index)
    assert model._inference.agrees is False


def test_checked_once_a_model_is_not_checked_again_for_another_graph() -> None:
    model, data = called()
    del data
    gc.collect()
    other = graph(5)
    assert model._inference.passes is None
    check(model, other.x, other.edge_index)
    assert model._inference.agrees
    parts = model._inference._parts
    check(model, other.x.clone(), other.edge_index)
    assert model._inference._parts is parts


def test_an_answer_is_the_callers_to_write_to() -> None:
    """A model of one layer, and nothing after it, answers with what is kept."""
    model, data = called(lambda: Sequential("x, edge_index", [(GCNConv(F_IN, CLASSES), "x, edge_index -> x")]))
    with torch.no_grad():
        model(data.x, data.edge_index).mul_(3)
    check(model, data.x, data.edge_index)


def test_weights_under_a_name_of_the_users_own_count() -> None:
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.ModuleList([GCNConv(F_IN, 8), GCNConv(8, CLASSES)])

        def forward(self, data: Data) -> Tensor:
            h = F.relu(self.convs[0](data.x, data.edge_index, data.closeness))
            return self.convs[1](h, data.edge_index)

    data, draw = graph(), torch.Generator().manual_seed(0)
    data.closeness = torch.rand(data.num_edges, generator=draw)
    model = moved(ab.attach(seeded(Weighted).eval(), data, forward=lambda model, data: model(data)))
    model._inference.worth = 0
    check(model, data)
    data.closeness = torch.rand(data.num_edges, generator=draw)
    check(model, data)


def test_a_base_in_training_mode_draws_and_counts_as_it_would() -> None:
    model, data = called(lambda: GAT(F_IN, 8, 2, CLASSES, dropout=0.5, norm="BatchNorm"))
    model.base.train()
    batches = next(buffer for name, buffer in model.base.named_buffers() if name.endswith("num_batches_tracked"))
    answers = []
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        for plainly in (False, True):
            torch.manual_seed(1)
            with model.plainly() if plainly else nullcontext():
                answers.append(model(data.x, data.edge_index))
    assert torch.equal(*answers)
    assert batches.item() == 2


def test_autocast_and_dropping_take_the_plain_path_for_as_long_as_they_last() -> None:
    model, data = called()
    for again in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            check(model, data.x, data.edge_index)
        with torch.no_grad():
            with model.dropping(0.5, torch.Generator().manual_seed(0)):
                found = model(data.x, data.edge_index)
            with model.dropping(0.5, torch.Generator().manual_seed(0)), model.plainly():
                assert torch.equal(found, model(data.x, data.edge_index))
        if not again:
            model = moved(ab.attach(ab.detach(model), data))  # first called under autocast
            model._inference.worth = 0
    check(model, data.x, data.edge_index)
    assert model._inference.agrees


def test_vmap_over_buffers() -> None:
    model, data = called()
    stacked = {name: torch.stack([value, 2 * value]) for name, value in model.named_parameters()}

    def answer(parameters: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(model, parameters, (data.x, data.edge_index))

    with torch.no_grad():
        found = torch.vmap(answer)(stacked)
        for number in range(2):
            alone = answer({name: value[number] for name, value in stacked.items()})
            torch.testing.assert_close(found[number], alone, rtol=1e-4, atol=1e-4)


def test_a_base_made_in_inference_mode() -> None:
    with torch.inference_mode():
        gnn = seeded(MODELS["gcn"]).eval()
    data = graph()
    model = moved(ab.attach(gnn, data))
    model._inference.worth = 0
    check(model, data.x, data.edge_index)
    with torch.inference_mode():
        next(gnn.parameters()).mul_(2)
    check(model, data.x, data.edge_index)


def test_threads_take_turns() -> None:
    model, data = called(lambda: GCN(F_IN, 32, 3, CLASSES))
    graphs, failed = [data, graph(5)], []
    with torch.no_grad(), model.plainly():
        expected = [model(each.x, each.edge_index) for each in graphs]

    def calls(offset: int) -> None:
        with torch.no_grad():
            for number in range(offset, offset + 30):
                each = graphs[number % 2]
                try:
                    found = model(each.x, each.edge_index)
                    torch.testing.assert_close(found, expected[number % 2], rtol=1e-4, atol=1e-4)
                except Exception as error:
                    failed.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=calls, args=(offset,)) for offset in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failed
    assert all("forward" not in module.__dict__ for module in model.base.modules())


def test_nothing_is_noted_between_calls_also_after_an_error() -> None:
    model, data = called()
    with torch.no_grad():
        before = model(data.x, data.edge_index)
    passes = model._inference.passes
    assert passes is not None

    def fails(*args: object) -> None:
        raise RuntimeError("stop")

    handle = model.base.convs[1].register_forward_hook(fails)
    with torch.no_grad(), pytest.raises(RuntimeError, match="stop"):
        model(data.x, data.edge_index)
    handle.remove()
    assert model._accelerator is None
    assert model._pass is None
    with torch.no_grad():
        assert torch.equal(model(data.x, data.edge_index), before)
    for each in (passes, model._inference.passes):
        assert each._fresh is None
        assert each._beside is None


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_first_call_that_is_not_finite_decides_nothing_wrongly(bad: float) -> None:
    data = graph()
    model = moved(ab.attach(seeded(MODELS["gcn"]).eval(), data))
    model._inference.worth = 0
    x = data.x.clone()
    x[0, 0] = bad
    with torch.no_grad():
        found = model(x, data.edge_index)
        with model.plainly():
            torch.testing.assert_close(found, model(x, data.edge_index), equal_nan=True, rtol=1e-5, atol=1e-5)
    assert model._inference.agrees
    check(model, data.x, data.edge_index)


def test_contents_tell_values_apart() -> None:
    for tensor in (torch.eye(5, 3), torch.arange(6).view(2, 3), torch.tensor([1.0, float("nan")]), torch.tensor(2.0)):
        before = Contents.of([tensor])
        assert before.same_as(Contents.of([tensor]))
        assert not before.same_as(Contents.of([tensor.clone()]))
        tensor.data[(0,) * tensor.dim()] = 7
        assert not before.same_as(Contents.of([tensor]))
