"""Run the layers of any model in their fast form over views of one graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from aggbuffer.config import Directions
from aggbuffer.fast.features import Features
from aggbuffer.fast.layers import FastForm, Pass, fast_form
from aggbuffer.fast.tall import times
from aggbuffer.fast.views import Patterns, View
from aggbuffer.graph import Graph, is_sparse_adjacency


class FastLayers:
    """Fast forms of a model's layers over one graph; PyG's own layers run wherever a form does not apply.

    Args:
        graph: The whole graph.
        features: Its features, where they have been looked at before.
        differentiable: Whether there will be gradients.

    Attributes:
        left_alone: The layers with a fast form that, in the last pass, ran as they are all the same.
    """

    def __init__(self, graph: Graph, features: Features | None = None, *, differentiable: bool = True) -> None:
        self.graph = graph
        symmetric = differentiable and graph.is_undirected  # which only gradients ask
        self.patterns = Patterns(graph)
        self.whole = View(graph, self.patterns, None, graph.data, symmetric=symmetric)
        self.features = Features(graph.x) if features is None else features
        self.view: View | None = None

    def bind(self, graph: Graph) -> None:
        """Belong to the tensors of this graph, which must be those that it was made for."""
        self.graph, self.features.x = graph, graph.x
        self.whole.bind(graph, graph.data)

    def only(self, mask: Tensor, directions: Directions, loops: Tensor | None = None) -> View:
        """The graph with only some edges.

        Args:
            mask: The edges that remain, ``[E]`` bool.
            directions: How it was drawn; both directions of an edge ``"together"`` leave a symmetric graph symmetric.
            loops: What the self-loop of each node weighs, ``[N]``, for layers that add one; None for 1.
        """
        symmetric = directions == "together" and self.graph.is_undirected
        return View(self.graph, self.patterns, mask, self.graph.subgraph(mask), symmetric=symmetric, loops=loops)

    @contextmanager
    def over(self, view: View | None) -> Iterator[None]:
        """Inside, layers that are called with the edges of ``view`` run in their fast form."""
        before, self.view = self.view, view
        self.left_alone: set[nn.Module] = set()
        try:
            yield
        finally:
            self.view = before

    @contextmanager
    def installed(self, layers: Mapping[nn.Module, FastForm], maps: Iterable[nn.Module] = ()) -> Iterator[None]:
        """Inside, these layers can run in their fast forms; afterwards they are as they were.

        Args:
            layers: Convolutions.
            maps: Linear maps of a frozen model, whose product with the features is computed once.
        """
        switches: dict[nn.Module, Callable[..., Any]] = {conv: _Switch(self, conv, layers[conv]) for conv in layers}
        switches |= {linear: _Constant(self, linear) for linear in maps}
        changed = [module for module in switches if "forward" not in module.__dict__]
        try:
            for module in changed:
                module.__dict__["forward"] = switches[module]
            yield
        finally:
            for module in changed:
                module.__dict__.pop("forward", None)

    def pass_for(self, conv: nn.Module, x: Tensor) -> Pass:
        """What ``conv`` needs to run on ``x`` over the current view."""
        assert self.view is not None
        if x is not self.graph.x:
            return Pass(self.view, self._linear, None)
        return Pass(self.view, self._linear, self._constants_of(conv), sparse=self.features.is_sparse)

    def _linear(self, x: Tensor, weight: Tensor) -> Tensor:
        return self.features @ weight.t() if x is self.graph.x else times(x, weight.t())

    def _constants_of(self, conv: nn.Module) -> Callable[[str, Callable[[], Tensor]], Tensor] | None:
        """Where a layer over the features keeps what no pass changes; None while its weights are being trained."""
        return None


class _Switch:
    """Stands in for a layer's ``forward``; calls the layer's own where the fast form does not apply."""

    def __init__(self, layers: FastLayers, conv: nn.Module, fast: FastForm) -> None:
        self.layers, self.conv, self.fast = layers, conv, fast
        self.plain: Callable[..., Any] = conv.forward

    @property
    def __signature__(self) -> inspect.Signature:
        """That of the layer, which tells how a model that is one bare layer is called."""
        return inspect.signature(self.plain)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        view = self.layers.view
        edges = args[1] if len(args) > 1 else kwargs.get("edge_index")
        extra = [*args[2:], *(value for name, value in kwargs.items() if name not in ("x", "edge_index"))]
        if view is None or edges is not view.edges or any(value is not None for value in extra):
            if view is not None:
                self.layers.left_alone.add(self.conv)
            return self.plain(*args, **kwargs)
        x = args[0] if args else kwargs["x"]
        return self.fast(self.layers.pass_for(self.conv, x), x)


class _Constant:
    """Stands in for the ``forward`` of a frozen linear map; what it makes of the constant features is kept."""

    def __init__(self, layers: FastLayers, linear: nn.Module) -> None:
        self.layers, self.linear = layers, linear
        self.plain: Callable[..., Tensor] = linear.forward

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        is_known = len(args) == 1 and not kwargs and args[0] is self.layers.graph.x
        constant = self.layers._constants_of(self.linear) if is_known else None
        return self.plain(*args, **kwargs) if constant is None else constant("output", lambda: self.plain(*args))


def fast_forms(gnn: nn.Module) -> dict[nn.Module, FastForm]:
    """The layers of a model that have a fast form."""
    forms = {conv: fast_form(conv) for conv in gnn.modules()}
    return {conv: form for conv, form in forms.items() if form is not None}


def covers(graph: Graph) -> bool:
    """Whether there are fast forms for this graph: on a CPU, in single or double precision, as an edge index."""
    if graph.x.device.type != "cpu" or graph.x.dtype not in (torch.float32, torch.float64):
        return False
    edges = graph.data.get("edge_index")
    return edges is not None and not is_sparse_adjacency(edges)
