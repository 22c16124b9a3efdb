"""GCN: the base model of every other method (or another architecture in its place), trained once a split and kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from paper.bases import Augmentation, kept, train_new
from paper.methods import Outcome, Task
from paper.settings import BaseSettings


def train(task: Task) -> Outcome:
    """Without anything added, and so without hyperparameters of its own."""
    task.merged()
    return supervised(task, "base", task.base)


def alone(task: Task) -> Task:
    """The task of training the base of another method: without that method's own hyperparameters."""
    return replace(task, params={})


def supervised(
    task: Task,
    method: str,
    settings: BaseSettings,
    augmentation: Augmentation | None = None,
    params: Mapping[str, Any] | None = None,
) -> Outcome:
    """A model trained on labels, kept.

    Args:
        task: Graph and split.
        method: A name for the file.
        settings: Of model and training.
        augmentation: Of the training steps.
        params: What the augmentation was made from.
    """
    params = params or {}
    trained = kept(
        task.bases,
        f"{task.dataset}-{task.split}-{method}",
        task.data,
        settings,
        params,
        lambda: train_new(task.data, settings, task.split, augmentation),
    )
    record: dict[str, Any] = {"settings": asdict(settings), "params": dict(params), **trained.record()}
    return Outcome(trained.gnn, record | {"seconds": {"train": trained.seconds}})
