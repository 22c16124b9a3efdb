"""The forward passes of a training step: plainly, or by the fast path where model and graph allow it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch_geometric.data import Data

from aggbuffer import layers
from aggbuffer.config import Directions
from aggbuffer.fast.passes import FastPasses, can_run, same_answers, too_large_to_check
from aggbuffer.graph import Graph
from aggbuffer.model import BufferedGNN
from aggbuffer.perturb import keep_mask

logger = logging.getLogger("aggbuffer")

_STIR = 0.1  # how far buffers are moved for the check


class Passes(Protocol):
    """Runs a model on a graph, on parts of it, and on any other graph over the same nodes."""

    whole: Any

    @property
    def weighs_loops(self) -> bool:
        """Whether :meth:`only` can give self-loops weights."""
        ...

    def only(self, mask: Tensor, directions: Directions, loops: Tensor | None = None) -> Any:
        """The graph with only the edges of ``mask`` ``[E]`` bool, to be handed to :meth:`run`.

        Where :attr:`weighs_loops`, ``loops`` ``[N]`` are the weights of the self-loops that layers add.
        """

    def run(self, view: Any) -> Tensor:
        """Logits ``[N, C]``."""

    def parameters_changed(self) -> None:
        """To be told after every change of the buffers' parameters."""

    def ready(self) -> Any:
        """A context in which all passes must be made."""


class PlainView(NamedTuple):
    """A graph, and what the self-loops weigh that layers add, ``[N]``; None for 1."""

    data: Data
    loops: Tensor | None


class PlainPasses:
    """The model as the user calls it: the fallback, and the oracle of the fast path."""

    def __init__(self, model: BufferedGNN, graph: Graph) -> None:
        self.model, self.graph = model, graph
        self.whole: Data = graph.data

    @property
    def weighs_loops(self) -> bool:
        return weighs_loops(self.model)

    def only(self, mask: Tensor, directions: Directions, loops: Tensor | None = None) -> PlainView:
        return PlainView(self.graph.subgraph(mask), loops)

    def run(self, view: PlainView | Data) -> Tensor:
        data, loops = view if isinstance(view, PlainView) else (view, None)
        with self.model.plainly(), self.model.weighing(loops):
            return self.model.run(data)

    def parameters_changed(self) -> None:
        pass

    @contextmanager
    def ready(self) -> Iterator[None]:
        yield


def weighs_loops(model: BufferedGNN) -> bool:
    """Whether every layer of a model adds self-loops whose weight a pass can change."""
    modules = dict(model.base.named_modules())
    return all(layers.weighs_loops(modules[spec.name]) for spec in model.layers)


def choose_passes(model: BufferedGNN, graph: Graph, accelerate: bool) -> Passes:
    """The fast passes where they are wanted, possible, and give the plain ones' answers."""
    plain = PlainPasses(model, graph)
    if not accelerate or not can_run(model, graph):
        return plain
    fast = FastPasses(model, graph)
    if too_large_to_check(model, graph) or _agree(plain, fast, model, graph):
        return fast
    logger.info("the fast path does not reproduce this model's answers; training runs on the plain path")
    return plain


def _agree(plain: PlainPasses, fast: FastPasses, model: BufferedGNN, graph: Graph) -> bool:
    """Whether both paths give the same logits, with buffers that are not zero, on the graph and on a part of it.

    The conditions on fast layers cover what is known; this covers what a user's model may do besides. Each fast pass
    runs twice, as a model that writes into a kept constant shows only then.
    """
    draw = torch.Generator().manual_seed(0)
    mask = keep_mask(graph, 0.5, draw)
    parameters = model.buffer_parameters()
    before = [parameter.detach().clone() for parameter in parameters]
    try:
        with torch.no_grad():
            for parameter in parameters:
                parameter.add_(torch.randn(parameter.shape, generator=draw, dtype=parameter.dtype), alpha=_STIR)
            expected = [plain.run(plain.whole), plain.run(plain.only(mask, "together"))]
            with fast.ready():
                views = [fast.whole, fast.only(mask, "together")]
                found = [[fast.run(view) for view in views] for _ in range(2)]
        return all(same_answers(e, f) for run in found for e, f in zip(expected, run, strict=True))
    finally:
        fast.parameters_changed()
        with torch.no_grad():
            for parameter, value in zip(parameters, before, strict=True):
                parameter.copy_(value)
