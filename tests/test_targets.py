"""Masks, labels and the task they imply."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from aggbuffer.errors import ConfigError, GraphError
from aggbuffer.targets import Labels, infer_task, refuse_overlap, select
from helpers_fit import refused

EVERYONE = torch.arange(4)


@pytest.mark.parametrize(
    ("labels", "outputs", "task"),
    [
        (torch.tensor([0, 1, 2, 1]), 3, "multiclass"),
        (torch.tensor([[0], [1], [2], [1]]), 3, "multiclass"),
        (torch.tensor([0, 1, 1, 0]), 2, "multiclass"),
        (torch.tensor([0, 1, -1, 0]), 2, "multiclass"),
        (torch.tensor([True, False, True, False]), 2, "multiclass"),
        (torch.tensor([0, 1, 1, 0]), 1, "multilabel"),
        (torch.tensor([0.0, 1.0, 1.0, 0.0]), 1, "multilabel"),
        (torch.tensor([0, 1, -1, 0]), 1, "multilabel"),
        (torch.tensor([0.0, 1.0, float("nan"), 0.0]), 1, "multilabel"),
        (torch.tensor([[0, 1], [1, 1], [0, 0], [1, 0]]), 2, "multilabel"),
        (torch.tensor([[0, 1], [1, 1], [-1, -1], [1, 0]]), 2, "multilabel"),
        (torch.tensor([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]), 2, "multilabel"),
        (torch.tensor([0.5, 1.0, -1.0, 0.0]), 1, "regression"),
        (torch.tensor([3, 1, 4, 1]), 1, "regression"),
        (torch.tensor([[0.5, 1.0], [2.0, 1.0], [0.0, 0.0], [1.0, 0.0]]), 2, "regression"),
    ],
)
def test_the_task_is_read_off_the_labels(labels: Tensor, outputs: int, task: str) -> None:
    assert infer_task(labels, outputs) == task
    assert infer_task(labels, outputs, "regression") == "regression"  # the user knows better


def test_a_model_without_labels_is_a_classifier_unless_it_has_one_output() -> None:
    assert infer_task(None, 2) == "multiclass"
    with refused("one output and the graph no labels; say task=", ConfigError):
        infer_task(None, 1)
    assert infer_task(None, 1, "regression") == "regression"


def test_what_unlabelled_nodes_carry_does_not_matter() -> None:
    used = torch.tensor([0, 1])
    for filler in (-1, -100, 99):
        assert Labels.of(torch.tensor([0, 2, filler, filler]), 4, 3, used).task == "multiclass"
        assert Labels.of(torch.tensor([0, 1, filler, filler]), 4, 1, used).task == "multilabel"
        rows = torch.tensor([[0, 1], [1, 1], [filler, filler], [filler, filler]])
        assert Labels.of(rows, 4, 2, used).task == "multilabel"
    assert Labels.of(torch.tensor([0.5, 2.0, float("nan"), float("inf")]), 4, 1, used).task == "regression"


@pytest.mark.parametrize(
    ("labels", "outputs", "task", "words"),
    [
        (None, 3, "auto", "data.y is NoneType"),
        ([0, 1, 2, 1], 3, "auto", "data.y is list"),
        (torch.tensor([0, 1, 2]), 3, "auto", "one row for each of 4 nodes"),
        (torch.tensor(1), 3, "auto", "one row for each of 4 nodes"),
        (torch.zeros(4, 1, 1), 1, "auto", "one row for each of 4 nodes"),
        (torch.tensor([0, 1, 2, 3]), 3, "auto", "labels from 0 to 3, but the model has 3 outputs; expected 0 to 2"),
        (torch.tensor([0, -1, 2, 1]), 3, "auto", "labels from -1 to 2, but the model has 3 outputs"),
        (torch.tensor([0.0, 1.0, 2.0, 1.0]), 3, "auto", r"1 columns, but the model has 3 outputs.*data.y.long\(\)"),
        (torch.tensor([0.0, 1.0, 2.0, 1.0]), 3, "multiclass", r"expected \[nodes\] whole numbers"),
        (torch.zeros(4, 2), 3, "auto", "2 columns, but the model has 3 outputs"),
        (torch.tensor([0.0, 1.0, float("nan"), 2.0]), 1, "auto", "NaN or infinite labels"),
        (torch.tensor([0.0, 1.0, float("inf"), 2.0]), 1, "regression", "NaN or infinite labels"),
        (torch.tensor([0.0, 1.0, 0.5, 0.0]), 1, "multilabel", "labels other than 0 and 1"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(labels: Any, outputs: int, task: Any, words: str) -> None:
    with refused(words, GraphError):
        Labels.of(labels, 4, outputs, EVERYONE, task)


def test_labels_are_kept_in_the_form_that_the_losses_need() -> None:
    classes = Labels.of(torch.tensor([[0], [1], [2], [1]], dtype=torch.int32), 4, 3, EVERYONE)
    assert classes.values.tolist() == [0, 1, 2, 1]
    assert classes.values.dtype == torch.int64
    several = Labels.of(torch.tensor([True, False, True, True]), 4, 1, EVERYONE)
    assert several.task == "multilabel"
    assert several.values.tolist() == [[1.0], [0.0], [1.0], [1.0]]
    exact = torch.rand(4, 2, dtype=torch.float64)
    assert torch.equal(Labels.of(exact, 4, 2, EVERYONE).values, exact)


@pytest.mark.parametrize(
    "mask",
    [
        torch.tensor([False, True, False, True]),
        torch.tensor([1, 3]),
        torch.tensor([1, 3], dtype=torch.int32),
        [1, 3],
        [False, True, False, True],
        np.array([1, 3]),
        np.array([False, True, False, True]),
    ],
)
def test_a_mask_is_bool_or_node_numbers_given_or_in_the_data(mask: Any) -> None:
    for data, name in ((Data(), mask), (Data(my_mask=mask), "my_mask")):
        nodes = select(data, name, 4)
        assert nodes is not None
        assert nodes.tolist() == [1, 3]
        assert nodes.dtype == torch.int64


def test_a_mask_that_the_data_lacks_is_none() -> None:
    assert select(Data(), "train_mask", 4) is None


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (torch.zeros(4, dtype=torch.bool), "is empty"),
        (torch.tensor([], dtype=torch.int64), "is empty"),
        (torch.ones(5, dtype=torch.bool), "bool mask of length 4"),
        (torch.ones(4, 2, dtype=torch.bool), "bool mask of length 4"),
        (torch.tensor([0, 4]), "refers to nodes 0 to 4; expected 0 to 3"),
        (torch.tensor([-1, 2]), "refers to nodes -1 to 2; expected 0 to 3"),
        (torch.tensor([1, 1, 2]), "names some node twice"),
        (torch.tensor([0, 1, 1, 0], dtype=torch.uint8), r"names some node twice; .*\.bool\(\)"),
        (torch.tensor([0.0, 1.0]), "expected a bool mask or nodes"),
        (torch.tensor([[0, 1]]), "expected a bool mask or nodes"),
    ],
)
def test_masks_that_cannot_be_used_are_refused_by_name(mask: Tensor, words: str) -> None:
    with refused(f"^The mask .*{words}", GraphError):
        select(Data(), mask, 4)
    with refused(f"^data.val_mask .*{words}", GraphError):
        select(Data(val_mask=mask), "val_mask", 4)


def test_overlapping_masks_are_refused_with_the_count() -> None:
    refuse_overlap(torch.tensor([0, 1]), torch.tensor([2, 3]), ("a", "b"))
    with refused("a and b share 2 nodes", GraphError):
        refuse_overlap(torch.tensor([0, 1, 2]), torch.tensor([2, 3, 0]), ("a", "b"))
