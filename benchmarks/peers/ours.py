"""This library's part: what a user of ``aggbuffer`` runs, and the base GCN as ``paper/`` trains it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import torch
import torch_geometric
from torch import Tensor
from torch_geometric.data import Data

import aggbuffer as ab
from aggbuffer.fast.runner import FastLayers
from aggbuffer.fast.views import View
from aggbuffer.result import EpochRecord
from benchmarks.peers.protocol import CaseFile, Turns, run, sample
from paper.bases import GNN, Augmentation, new, train
from paper.settings import BaseSettings

ENDLESS = 1_000_000_000  # epochs: whoever asks for steps decides when to stop


def step(case: CaseFile, turns: Turns) -> None:
    """A whole epoch of ``fit`` is one step, validation included."""
    data, settings = graph_of(case), case.settings
    model = ab.attach(base_of(case, data), data)
    losses: list[float] = []

    def between(record: EpochRecord) -> bool:
        losses.append(record.loss)
        return not turns.next()

    ab.fit(
        model,
        data,
        drop_edge=settings.drop_edge,
        dropout=settings.dropout,
        strength=settings.strength,
        lr=settings.lr,
        self_loops="kept",  # as the peers do
        max_epochs=ENDLESS,
        patience=ENDLESS,
        progress=False,
        callbacks=[between],
    )
    turns.note(losses=losses)


def base(case: CaseFile, turns: Turns) -> None:
    """A training step of the base GCN and its evaluation, from one request for a view of the graph to the next."""
    data = graph_of(case)
    gnn = base_of(case, data)
    with suppress(_StopError):
        train(gnn, data, base_settings(case), torch.Generator().manual_seed(0), _InTurn(turns))
    with torch.no_grad():
        turns.note(finite=all(bool(parameter.isfinite().all()) for parameter in gnn.parameters()))


def inference(case: CaseFile, turns: Turns) -> None:
    """The model with buffers, which are not zero, called as a user calls it."""
    data = graph_of(case)
    _answer_in_turn(_moved(case, data), data, turns)


def inference_base(case: CaseFile, turns: Turns) -> None:
    """The same model over the same path, without its buffers.

    Switched off, buffers leave a model to its own layers, for the base's answers to the bit. So the fast path is asked
    for by name here.
    """
    data = graph_of(case)
    model = _moved(case, data)

    def base(x: Tensor, edge_index: Tensor) -> Tensor:
        answer: Tensor | None = model._inference.answer(model, (x, edge_index), {})
        assert answer is not None, "the fast path has not answered"
        return answer

    with model.disabled():
        _answer_in_turn(base, data, turns)


def inference_unseen(case: CaseFile, turns: Turns) -> None:
    """The model with buffers on edges that it has never seen: nothing that depends on them has been kept."""
    data = graph_of(case)
    model = _moved(case, data)
    _answer_in_turn(lambda x, edge_index: model(x, edge_index.clone()), data, turns)


def _moved(case: CaseFile, data: Data) -> ab.BufferedGNN:
    model = buffered(case, data)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.buffer_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw) * 0.01)
    return model


TASKS = {
    "step": step,
    "base": base,
    "inference": inference,
    "inference_base": inference_base,
    "inference_unseen": inference_unseen,
}


def graph_of(case: CaseFile) -> Data:
    """The case as PyG has graphs."""
    return Data(x=case.x, edge_index=case.edge_index, y=case.y, train_mask=case.train_mask, val_mask=case.val_mask)


def base_of(case: CaseFile, data: Data) -> GNN:
    """The case's base model."""
    gnn = new(data, base_settings(case), seed=0)
    gnn.load_state_dict(case.weights)
    return gnn.eval()


def base_settings(case: CaseFile) -> BaseSettings:
    """The case's settings as ``paper/`` has them."""
    s = case.settings
    return BaseSettings(
        s.hidden,
        s.base_lr,
        s.base_weight_decay,
        s.base_dropout,
        aggregation="rw" if s.aggregation == "rw" else "sym",
        residual=s.residual,
        layers=s.layers,
        patience=ENDLESS,
        max_epochs=ENDLESS,
    )


def buffered(case: CaseFile, data: Data) -> ab.BufferedGNN:
    """The base model with buffers, which are zero, in evaluation mode."""
    return ab.attach(base_of(case, data), data).eval()


def _answer_in_turn(model: Callable[[Tensor, Tensor], Tensor], data: Data, turns: Turns) -> None:
    logits: Tensor | None = None
    with torch.no_grad():
        while turns.next():
            logits = model(data.x, data.edge_index)
    if logits is not None:
        turns.note(logits=sample(logits))


class _StopError(Exception):
    """No more steps are wanted."""


class _InTurn(Augmentation):
    """Changes nothing about a training step but when it starts."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns

    def view(self, layers: FastLayers, generator: torch.Generator) -> View:
        if not self.turns.next():
            raise _StopError
        return super().view(layers, generator)


if __name__ == "__main__":
    run(TASKS, {"aggbuffer": ab.__version__, "torch_geometric": torch_geometric.__version__})
