"""The methods that the paper compares, on graphs small enough to check them against their literal form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import aggbuffer as ab
from aggbuffer.data import demo_graph
from paper.methods import Task, by_name
from paper.settings import BaseSettings, BufferSettings

BASE = BaseSettings(16, 1e-2, 5e-4, 0.3, max_epochs=4)
BUFFER = BufferSettings(0.5, 0.2, 0.5)
FITTED = {"max_epochs": 3}
BASE_METHODS = ("MLP", "GCN", "DropEdge", "DropNode", "TUNEUP")


def task(folder: Path, **changes: object) -> Task:
    return replace(Task("demo", 0, demo_graph(), folder, BASE, BUFFER, {}), **changes)


@pytest.mark.parametrize("name", list(by_name()))
def test_every_method_gives_a_model_that_can_be_evaluated(name: str, tmp_path: Path) -> None:
    unit = task(tmp_path, params={} if name in BASE_METHODS else FITTED)
    outcome = by_name()[name](unit)
    evaluation = ab.evaluate(outcome.model, unit.data, keep=(1, 0))
    assert evaluation.overall.accuracy > 0
    assert {"epochs", "best_epoch", "val_accuracy", "seconds"} <= set(outcome.record)
