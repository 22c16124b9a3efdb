"""The forward passes of a training step: plainly, or by the fast path where model and graph allow it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from torch import Tensor
from torch_geometric.data import Data

from aggbuffer.config import Directions
from aggbuffer.fast.passes import FastPasses, can_run
from aggbuffer.graph import Graph
from aggbuffer.model import BufferedGNN


class Passes(Protocol):
    """Runs a model on a graph, on parts of it, and on any other graph over the same nodes."""

    whole: Any

    def only(self, mask: Tensor, directions: Directions) -> Any:
        """The graph with only the edges of ``mask`` ``[E]`` bool, to be handed to :meth:`run`."""

    def run(self, view: Any) -> Tensor:
        """Logits ``[N, C]``."""

    def parameters_changed(self) -> None:
        """To be told after every change of the buffers' parameters."""

    def ready(self) -> Any:
        """A context in which all passes must be made."""


class PlainPasses:
    """The model as the user calls it: the fallback, and the oracle of the fast path."""

    def __init__(self, model: BufferedGNN, graph: Graph) -> None:
        self.model, self.graph = model, graph
        self.whole: Data = graph.data

    def only(self, mask: Tensor, directions: Directions) -> Data:
        return self.graph.subgraph(mask)

    def run(self, view: Data) -> Tensor:
        return self.model.run(view)

    def parameters_changed(self) -> None:
        pass

    @contextmanager
    def ready(self) -> Iterator[None]:
        yield


def choose_passes(model: BufferedGNN, graph: Graph, accelerate: bool) -> Passes:
    """The fast passes where they are wanted and possible."""
    return FastPasses(model, graph) if accelerate and can_run(model, graph) else PlainPasses(model, graph)
