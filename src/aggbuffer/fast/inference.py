"""Calls of a model with buffers outside of training, on the fast path where that gives the plain answers.

A graph is sorted when it is first seen. What the frozen model makes of features and edges that come again is kept while
they live, and forgotten when they, or the weights, change.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from aggbuffer.fast.changes import Contents, Parts
from aggbuffer.fast.passes import FastPasses, can_run, same_answers, too_large_to_check
from aggbuffer.graph import Graph

if TYPE_CHECKING:
    from aggbuffer.model import BufferedGNN

# Sorting an edge costs about what a plain layer pays for so many of its channels.
_WORTH_SORTING = 64
_OF_FEATURES = ("linear map", "root")  # constants that do not depend on the edges


class Inference:
    """What one model has prepared for the graph that it saw last; copies and pickles of it start empty.

    Attributes:
        turn: For threads that call one model, whose passes cannot overlap: its hooks share what they note.
    """

    def __init__(self) -> None:
        self.turn = threading.RLock()
        self._forget()
        self.worth = _WORTH_SORTING
        self.agrees: bool | None = None  # with the plain path; None while it has not been tried
        self._parts: Parts | None = None  # of the model that was tried

    def __reduce__(self) -> tuple[type[Inference], tuple[()]]:
        return Inference, ()

    def _forget(self) -> None:
        self.passes: FastPasses | None = None
        self._seen: tuple[weakref.ref[Tensor], weakref.ref[Tensor]] | None = None
        self._contents: tuple[Contents, Contents, Contents] | None = None  # of x, edges and weights

    def answer(self, model: BufferedGNN, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """``model(*args, **kwargs)``, or None where the plain path has to answer."""
        if self.agrees is False or not _may_answer(model):
            return None
        found = _graph_of(args, kwargs, model.num_features)
        if found is None or not self._is_worth_it(model, *found):
            return None
        graph = _graph(*found)
        if not can_run(model, graph):
            return None
        passes = self._prepared(model, graph)
        if passes is None:
            return None
        out = self._run(model, passes, graph, args, kwargs)
        if not isinstance(out, Tensor):  # it may hold what is kept, where a write into it would not be seen
            self.agrees = False
            self._forget()
            return None
        if self.agrees is None and not too_large_to_check(model, graph):
            expected = self._check(model, passes, graph, args, kwargs, out)
            if not self.agrees:
                self._forget()
                return expected
        return out.clone() if passes.keeps_memory_of(out) else out

    def _check(
        self,
        model: BufferedGNN,
        passes: FastPasses,
        graph: Graph,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        out: Tensor,
    ) -> Any:
        """Note whether the plain path, whose answer this returns, agrees with ``out``."""
        with model.plainly():
            expected = model(*args, **kwargs)
        # A model that writes into a kept constant shows only in a second pass.
        again = self._run(model, passes, graph, args, kwargs)
        # One that changes itself as it runs would have to be checked at every call.
        settled = self._parts is not None and self._parts.same_as(Parts(model.base))
        self.agrees = settled and same_answers(expected, out) and same_answers(expected, again)
        return expected

    def _is_worth_it(self, model: BufferedGNN, x: Tensor, edges: Tensor) -> bool:
        widths = sum(spec.out_width * spec.hops for spec in model.layers)
        return widths >= self.worth and edges.size(1) > 0 and x.size(0) > 1

    def _run(
        self, model: BufferedGNN, passes: FastPasses, graph: Graph, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        passes.bind(graph)
        try:
            with passes.ready(), passes.over(passes.whole), model.plainly():
                return model(*args, **kwargs)
        finally:
            passes.forget_pass()
            passes.bind(_NOTHING)  # so that it is the caller alone who keeps the graph alive

    def _prepared(self, model: BufferedGNN, graph: Graph) -> FastPasses | None:
        """Everything kept that still holds, and the rest anew; None for a graph that the fast path does not cover."""
        x, edges = graph.x, graph.data.edge_index
        weights = [*model.base.parameters(), *model.base.buffers(), *model.buffer_parameters()]
        now, parts = (Contents.of([x]), Contents.of([edges]), Contents.of(weights)), Parts(model.base)
        before, old = self._contents, self.passes
        seen = (None, None) if self._seen is None else (self._seen[0](), self._seen[1]())
        same_x = before is not None and seen[0] is x and before[0].same_as(now[0])
        same_edges = before is not None and seen[1] is edges and before[1].same_as(now[1])
        same_parts = self._parts is not None and self._parts.same_as(parts)
        same_model = before is not None and same_parts and before[2].same_as(now[2])
        if same_model and same_x and same_edges:
            return old
        self._forget()
        if not same_parts:
            self.agrees, self._parts = None, parts
        if all(not bool(parameter.any()) for parameter in model.buffer_parameters()):
            return None  # as attached, to the bit
        if not _in_range(edges, x.size(0)):
            return None
        features = old.features if old is not None and same_x else None
        self.passes = FastPasses(model, graph, features=features, keep_first=True)
        if old is not None and features is not None and same_model:
            self.passes.adopt(old, _OF_FEATURES)
        this = weakref.ref(self)
        self._seen = weakref.ref(x, lambda _: _forget(this)), weakref.ref(edges, lambda _: _forget(this))
        self._contents = now
        return self.passes


def _forget(inference: weakref.ref[Inference]) -> None:
    found = inference()
    if found is not None:
        found._forget()


def _graph(x: Tensor, edges: Tensor) -> Graph:
    return Graph(Data(x=x, edge_index=edges), edges[0], edges[1])


_NOTHING = _graph(torch.empty(0, 0), torch.empty(2, 0, dtype=torch.int64))


def _may_answer(model: BufferedGNN) -> bool:
    """Whether a call made now wants numbers alone, from a model that gives the same ones every time."""
    transformed = torch._C._functorch.peek_interpreter_stack() is not None  # by torch.func, as in vmap
    if torch.is_grad_enabled() or transformed or not _is_eager():
        return False
    if model._accelerator is not None or model._dropout[0] > 0:  # as in the middle of a fit
        return False
    return not any(module.training for module in model.base.modules())  # dropout, moving statistics


def _is_eager() -> bool:
    compiling = torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None
    exporting = getattr(torch.compiler, "is_exporting", None)
    return not compiling and not (exporting is not None and exporting())


def _graph_of(args: Iterable[Any], kwargs: Mapping[str, Any], num_features: int) -> tuple[Tensor, Tensor] | None:
    """Features and edges, if a call has these two and nothing else."""
    values = [value for value in (*args, *kwargs.values()) if value is not None]
    if len(values) == 1 and isinstance(values[0], Data):
        data = values[0]
        if any(data.get(name) is not None for name in ("edge_weight", "edge_attr", "adj_t")):
            return None
        values = [data.get("x"), data.get("edge_index")]
    if len(values) != 2 or not all(type(value) is Tensor and not value.is_inference() for value in values):
        return None
    x, edges = values
    is_graph = x.dim() == 2 and x.size(1) == num_features and edges.dim() == 2 and edges.size(0) == 2
    is_dense = x.layout is torch.strided and edges.layout is torch.strided
    return (x, edges) if is_graph and is_dense and edges.dtype is torch.int64 else None


def _in_range(edges: Tensor, num_nodes: int) -> bool:
    return int(edges.min()) >= 0 and int(edges.max()) < num_nodes
