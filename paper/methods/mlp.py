"""MLP: the base without a graph. Its hyperparameters are the base's fields, searched anew as in the paper."""

from __future__ import annotations

from dataclasses import replace

from paper.methods import Outcome, Task, gcn


def train(task: Task) -> Outcome:
    """Linear layers in the convolutions' place, without residual connections."""
    base = task.base
    own = task.merged(hidden=base.hidden, lr=base.lr, weight_decay=base.weight_decay, dropout=base.dropout)
    return gcn.supervised(task, "MLP", replace(base, architecture="mlp", aggregation="sym", residual=False, **own))
