"""GCN: the base model of every other method, trained once a split and kept."""

from __future__ import annotations

from dataclasses import asdict

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from aggbuffer.files import write_safetensors
from paper.bases import GCN, train_gcn
from paper.methods import Outcome, Task
from paper.settings import BASE


def train(task: Task) -> Outcome:
    """The base GCN with the paper's hyperparameters."""
    settings = BASE[task.dataset]
    path = task.bases / f"{task.dataset}-{task.split}.safetensors"
    if not path.exists():
        trained = train_gcn(task.data, settings, task.split)
        path.parent.mkdir(parents=True, exist_ok=True)
        notes = {"epochs": trained.epochs, "best_epoch": trained.best_epoch, "val_accuracy": trained.val_accuracy}
        write_safetensors(trained.gnn.state_dict(), path, {key: str(value) for key, value in notes.items()})
    with safe_open(path, framework="pt") as file:
        notes = {key: float(value) for key, value in file.metadata().items()}
    gnn: nn.Module = GCN(task.data.num_features, int(task.data.y.max()) + 1, settings, torch.Generator())
    gnn.load_state_dict(load_file(path))
    return Outcome(gnn.eval(), {"settings": asdict(settings), **notes})
