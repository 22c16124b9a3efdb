"""How long a pass takes with and without the buffers, measured here and now."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
from torch_geometric.data import Data

from aggbuffer.evaluate import Predictor
from aggbuffer.graph import Graph
from aggbuffer.model import BufferedGNN

# Rounds, and seconds after which there are no more of them: on large graphs one has to do.
_MOST_ROUNDS, _SECONDS = 15, 2.0
_FEWEST_ROUNDS, _PATIENCE = 3, 20.0


def inference_times(model: BufferedGNN, data: Data) -> dict[str, Any]:
    """Median seconds of a whole pass, taken in turn so that what else the machine does hits all alike.

    ``before`` is the base, ``after`` the model with buffers as it is called, which may keep products of the graph
    between calls, and ``plain`` the same without.

    Args:
        model: A GNN with buffers.
        data: The graph.
    """
    predictor = Predictor(model, Graph.of(data), None)
    cuda = next((p.is_cuda for p in model.parameters()), False)

    def seconds() -> float:
        started = time.perf_counter()
        predictor.logits(data)
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - started

    def round_of() -> tuple[float, float, float]:
        with model.disabled():
            before = seconds()
        with model.plainly():
            plain = seconds()
        return before, plain, seconds()

    round_of()  # the first passes set things up
    started, rounds = time.perf_counter(), [round_of()]
    while len(rounds) < _MOST_ROUNDS:
        limit = _SECONDS if len(rounds) >= _FEWEST_ROUNDS else _PATIENCE
        if time.perf_counter() - started > limit:
            break
        rounds.append(round_of())
    before, plain, after = (statistics.median(side) for side in zip(*rounds, strict=True))
    return {"before": before, "plain": plain, "after": after, "rounds": len(rounds)}
