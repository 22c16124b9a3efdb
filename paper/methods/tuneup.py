"""TUNEUP: go on training the base on its own predictions, on graphs without a random share of their edges."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import torch

from paper.bases import Trained, kept, train
from paper.methods import Outcome, Task, gcn
from paper.methods.dropedge import DropEdge
from paper.settings import BaseSettings

_SECOND_STAGE = 1_000_003  # keeps its draws apart from those of the first


def train_twice(task: Task) -> Outcome:
    """With ``drop_edge``, and the ``lr``, ``dropout`` and ``weight_decay`` of the second stage (by default the base's).

    Every node counts: training nodes with their labels, all others with what the first stage predicts for them.
    """
    base = task.base
    params = task.merged(drop_edge=0.5, lr=base.lr, dropout=base.dropout, weight_decay=base.weight_decay)
    second = replace(base, **{name: params[name] for name in ("lr", "dropout", "weight_decay")})
    first = gcn.train(gcn.alone(task))
    name = f"{task.dataset}-{task.split}-TUNEUP"
    key = {"first": asdict(base), **params}
    trained = kept(task.bases, name, task.data, second, key, lambda: _second_stage(task, first, second, params))
    record: dict[str, Any] = {"settings": asdict(second), "params": params, "first": first.record, **trained.record()}
    return Outcome(trained.gnn, record | {"seconds": {**first.record["seconds"], "second": trained.seconds}})


def _second_stage(task: Task, first: Outcome, settings: BaseSettings, params: dict[str, Any]) -> Trained:
    data, gnn = task.data, first.model
    with torch.no_grad():
        targets = torch.where(data.train_mask, data.y, gnn(data.x, data.edge_index).argmax(-1))
    gnn.settings = settings  # whose dropout the model reads
    generator = torch.Generator().manual_seed(task.split + _SECOND_STAGE)
    everyone = torch.ones_like(data.train_mask)
    augmentation = DropEdge(params["drop_edge"])
    return train(gnn, data, settings, generator, augmentation, targets=targets, nodes=everyone)
