"""The losses against torch's own distributions and hand-written sums, and where they must not break."""

from __future__ import annotations

import math
from itertools import product
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Normal, kl_divergence

from aggbuffer.losses import StepOutputs, divergence, named, supervised
from aggbuffer.targets import Labels, Task

TASKS: list[Task] = ["multiclass", "multilabel", "regression"]
tasks = st.sampled_from(TASKS)


@st.composite
def pairs(draw: st.DrawFn, scales: tuple[float, ...] = (0.0, 1e-6, 1e-2, 1.0, 10.0)) -> tuple[Tensor, Tensor]:
    """Two matrices of logits, each entry of a size of its own, with ties and zeros among them."""
    shape = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    sizes = torch.tensor([draw(st.sampled_from(scales)), draw(st.sampled_from(scales))], dtype=torch.float64)

    def logits() -> Tensor:
        own = sizes[torch.randint(2, shape, generator=generator)]
        return own * torch.randn(shape, generator=generator, dtype=torch.float64)

    first = logits()
    return first, first + logits() if draw(st.booleans()) else logits()


@settings(max_examples=30, deadline=None)
@given(pairs(), tasks)
def test_a_divergence_is_never_negative(logits: tuple[Tensor, Tensor], task: Task) -> None:
    assert (divergence(*logits, task) >= -1e-12).all()


@settings(max_examples=30, deadline=None)
@given(pairs(scales=(0.0, 1.0, 1e4, 1e6)), tasks)
def test_a_divergence_of_equal_logits_is_exactly_zero(logits: tuple[Tensor, Tensor], task: Task) -> None:
    for dtype in (torch.float64, torch.float32):
        assert (divergence(logits[0].to(dtype), logits[0].to(dtype), task) == 0).all()


@settings(max_examples=30, deadline=None)
@given(pairs(scales=(0.0, 1e-6, 1e-2, 1.0, 3.0)))  # further out, torch's own Bernoulli divergence is infinite
def test_the_divergences_are_those_of_torch_distributions(logits: tuple[Tensor, Tensor]) -> None:
    p, q = logits
    expected = {
        "multiclass": kl_divergence(Categorical(logits=p), Categorical(logits=q)),
        "multilabel": kl_divergence(Bernoulli(logits=p), Bernoulli(logits=q)).sum(-1),
        "regression": kl_divergence(Normal(p, 1.0), Normal(q, 1.0)).sum(-1),
    }
    for task in TASKS:
        torch.testing.assert_close(divergence(p, q, task), expected[task], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("scale", [1.0, 1e4, 1e6])
@pytest.mark.parametrize(
    ("task", "name"), list(product(TASKS, ["rc", "rc_train", "pseudo_label", "self_distillation"]))
)
def test_saturated_logits_give_finite_losses_and_gradients(
    task: Task, name: Any, scale: float, dtype: torch.dtype
) -> None:
    draw = torch.Generator().manual_seed(0)
    # Every sign and order, among them sides that are certain of opposite answers, and exact ties.
    signs = torch.tensor(list(product([-1.0, 0.0, 1.0], repeat=3)))
    teacher, clean, perturbed = (
        (scale * signs[torch.randperm(len(signs), generator=draw)]).to(dtype).requires_grad_() for _ in range(3)
    )
    step = StepOutputs(teacher.detach(), clean, perturbed, torch.arange(0, len(signs), 2), None, task)
    terms = named(name)(step)
    total = terms.bias + terms.robust
    assert math.isfinite(total.item())
    assert total.item() > 0
    gradients = torch.autograd.grad(total, [clean, perturbed], allow_unused=True, materialize_grads=True)
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


def test_half_precision_sees_small_divergences_that_it_could_not_compute() -> None:
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(200, 10, generator=draw).bfloat16()
    other = (logits.float() * 1.01).bfloat16()
    exact = divergence(logits.double(), other.double(), "multiclass")
    torch.testing.assert_close(divergence(logits, other, "multiclass").double(), exact, rtol=1e-2, atol=1e-6)


def _softmax(row: list[float]) -> list[float]:
    top = max(row)
    powers = [math.exp(value - top) for value in row]
    return [power / sum(powers) for power in powers]


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def _by_hand(p: Tensor, q: Tensor, task: Task) -> float:
    """D(p ‖ q) of one node, from probabilities."""
    first, second = cast(list[float], p.tolist()), cast(list[float], q.tolist())
    if task == "regression":
        return sum((a - b) ** 2 / 2 for a, b in zip(first, second, strict=True))
    if task == "multilabel":
        total = 0.0
        for a, b in zip(map(_sigmoid, first), map(_sigmoid, second), strict=True):
            total += a * math.log(a / b) + (1 - a) * math.log((1 - a) / (1 - b))
        return total
    return sum(a * math.log(a / b) for a, b in zip(_softmax(first), _softmax(second), strict=True))


def _step(task: Task, nodes: int = 7, outputs: int = 3) -> StepOutputs:
    draw = torch.Generator().manual_seed(1)
    teacher, clean, perturbed = (torch.randn(nodes, outputs, generator=draw, dtype=torch.float64) for _ in range(3))
    values = {
        "multiclass": torch.randint(outputs, (nodes,), generator=draw),
        "multilabel": torch.randint(2, (nodes, outputs), generator=draw).double(),
        "regression": torch.randn(nodes, outputs, generator=draw, dtype=torch.float64),
    }[task]
    train = torch.tensor([1, 4, 5])
    return StepOutputs(teacher, clean, perturbed, train, Labels(task, values, outputs), task)


@pytest.mark.parametrize("task", TASKS)
def test_the_two_terms_are_the_sums_of_the_paper(task: Task) -> None:
    step = _step(task)
    bias = sum(_by_hand(step.teacher[i], step.clean[i], task) for i in (1, 4, 5)) / 3
    robust = [_by_hand(step.clean[i], step.perturbed[i], task) for i in range(7)]
    terms = named("rc")(step)
    assert terms.bias.item() == pytest.approx(bias, rel=1e-9)
    assert terms.robust.item() == pytest.approx(sum(robust) / 7, rel=1e-9)
    terms = named("rc_train")(step)
    assert terms.bias.item() == pytest.approx(bias, rel=1e-9)
    assert terms.robust.item() == pytest.approx((robust[1] + robust[4] + robust[5]) / 3, rel=1e-9)


@pytest.mark.parametrize("task", TASKS)
def test_gradients_reach_both_sides_unless_the_target_is_detached(task: Task) -> None:
    step = _step(task)
    for tensor in (step.clean, step.perturbed):
        tensor.requires_grad_()
    for detached in (False, True):
        terms = named("rc", detach_target=detached)(step)
        clean, perturbed = torch.autograd.grad(
            terms.robust, [step.clean, step.perturbed], allow_unused=True, materialize_grads=True
        )
        assert perturbed.abs().max() > 0
        assert bool(clean.abs().max() > 0) is not detached
        assert torch.autograd.grad(terms.bias, step.clean)[0].abs().max() > 0


@pytest.mark.parametrize("task", TASKS)
def test_the_ablations_learn_on_the_perturbed_graph_from_what_their_names_say(task: Task) -> None:
    step = _step(task)
    by_node = {
        "cross_entropy": [_label_loss(step.perturbed[i], step.labels.values[i], task) for i in (1, 4, 5)],
        "pseudo_label": [_label_loss(step.perturbed[i], _hard(step.teacher[i], task), task) for i in range(7)],
        "self_distillation": [_by_hand(step.teacher[i], step.perturbed[i], task) for i in range(7)],
    }
    for name, losses in by_node.items():
        terms = named(cast(Any, name))(step)
        assert terms.bias.item() == pytest.approx(sum(losses) / len(losses), rel=1e-9), name
        assert terms.robust.item() == 0


def _hard(teacher: Tensor, task: Task) -> Tensor:
    if task == "multiclass":
        return torch.tensor(teacher.tolist().index(max(teacher.tolist())))
    return (teacher > 0).double() if task == "multilabel" else teacher


def _label_loss(logits: Tensor, label: Tensor, task: Task) -> float:
    """The task's usual loss of one node, by hand; means over labels where there are several."""
    if task == "multiclass":
        return -math.log(_softmax(logits.tolist())[int(label)])
    pairs = list(zip(logits.tolist(), label.tolist(), strict=True))
    if task == "regression":
        return sum((value - goal) ** 2 / 2 for value, goal in pairs) / len(pairs)
    return -sum(math.log(_sigmoid(value if goal else -value)) for value, goal in pairs) / len(pairs)


@pytest.mark.parametrize("task", TASKS)
def test_the_supervised_loss_is_the_usual_one_in_any_precision(task: Task) -> None:
    step = _step(task)
    assert step.labels is not None
    nodes = torch.tensor([0, 6])
    expected = sum(_label_loss(step.clean[i], step.labels.values[i], task) for i in (0, 6)) / 2
    assert supervised(step.clean, step.labels, nodes).item() == pytest.approx(expected, rel=1e-9)
    for dtype in (torch.float16, torch.bfloat16):
        loss = supervised(step.clean.to(dtype), step.labels, nodes)
        assert loss.dtype == torch.float32
        assert loss.item() == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("task", TASKS)
def test_a_part_of_the_nodes_counts_in_both_terms(task: Task) -> None:
    step = _step(task)
    part = step.only(torch.tensor([2, 3]))
    terms = named("rc")(part)
    bias = sum(_by_hand(step.teacher[i], step.clean[i], task) for i in (2, 3)) / 2
    robust = sum(_by_hand(step.clean[i], step.perturbed[i], task) for i in (2, 3)) / 2
    assert (terms.bias.item(), terms.robust.item()) == pytest.approx((bias, robust), rel=1e-9)
