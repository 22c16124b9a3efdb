"""What remains without a component of the method: without freezing, without the block, without pre-training."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch

import aggbuffer as ab
from aggbuffer.losses import LossTerms, StepOutputs, divergence, supervised
from paper.bases import new
from paper.methods import Outcome, Task, gcn, joint
from paper.methods.buffer import VARIANTS, record_of

_BLOCK = ab.BufferConfig(**VARIANTS["GCN_B paper"].block)


def _config(task: Task) -> ab.FitConfig:
    return ab.FitConfig(**{"seed": task.split, **VARIANTS["GCN_B paper"].fit, **asdict(task.buffer), **task.params})


def minus_freezing(task: Task) -> Outcome:
    """The base trains along with the buffers, with the same optimizer."""
    base = gcn.train(gcn.alone(task))
    model = ab.attach(base.model, task.data, _BLOCK)
    everything = [*model.buffer_parameters(), *model.base.parameters()]
    return Outcome(model, record_of(base, _BLOCK, joint.fit(model, task.data, _config(task), everything)))


def minus_block(task: Task) -> Outcome:
    """The base is fine-tuned with L_RC; its buffers stay zero."""
    base = gcn.train(gcn.alone(task))
    model = ab.attach(base.model, task.data, _BLOCK)
    fitted = joint.fit(model, task.data, _config(task), list(model.base.parameters()))
    return Outcome(model, record_of(base, _BLOCK, fitted))


def minus_pre_training(task: Task) -> Outcome:
    """Base and buffers from their first weights, end to end; with no base to stay with, labels take its place.

    The base's weights have the base's learning rate and weight decay, the buffers those of the buffers.
    """
    gnn = new(task.data, task.base, task.split)
    model = ab.attach(gnn, task.data, _BLOCK)
    config = _config(task)
    groups: list[dict[str, Any]] = [
        {"params": model.buffer_parameters(), "lr": config.lr},
        {"params": list(gnn.parameters()), "lr": task.base.lr, "weight_decay": task.base.weight_decay},
    ]
    optimizer = torch.optim.Adam(groups, fused=True)
    everything = [parameter for group in groups for parameter in group["params"]]
    fitted = joint.fit(model, task.data, config, everything, loss=_labels_and_robustness, optimizer=optimizer)
    untrained = {"settings": asdict(task.base), "val_accuracy": None, "seconds": {"train": 0.0}}
    return Outcome(model, record_of(Outcome(gnn, untrained), _BLOCK, fitted))


def _labels_and_robustness(step: StepOutputs) -> LossTerms:
    """L_RC with the labels' distribution for the pre-trained model's."""
    assert step.labels is not None
    robust = divergence(step.clean, step.perturbed, step.task).mean()
    return LossTerms(supervised(step.clean, step.labels, step.train), robust)
