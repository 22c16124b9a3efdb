"""The passes of a training step, with what never changes computed once.

The base is frozen and the features are constant, so the first layer's linear map and its clean aggregation are
constants of the whole run, and the products of the features with the buffers' weights are shared by the clean, the
perturbed and the evaluation pass of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SGConv

from aggbuffer.attach import BufferedGNN
from aggbuffer.buffer import AggregationBuffer
from aggbuffer.config import Directions
from aggbuffer.fast.layers import FastForm, Pass, fast_form, sgc_propagation
from aggbuffer.fast.sparse import Features
from aggbuffer.fast.views import Pattern, View
from aggbuffer.graph import Graph, is_sparse_adjacency


class FastPasses:
    """Runs a model with buffers on a graph and on versions of it with fewer edges.

    Args:
        model: The model.
        graph: The whole graph.
    """

    def __init__(self, model: BufferedGNN, graph: Graph) -> None:
        self.model, self.graph = model, graph
        self.patterns = {loops: Pattern(graph, loops=loops) for loops in (True, False)}
        self.whole = View(graph, self.patterns, None, graph.data, symmetric=graph.is_undirected)
        self.view: View | None = None
        width = sum(cast(AggregationBuffer, block).weight.size(1) for block in model.blocks)
        self.features = Features(graph.x, width)
        self._hops_made_by = -1
        self._projected: dict[int, Tensor] = {}
        self._constants: dict[tuple[int, str], Tensor] = {}

    def only(self, mask: Tensor, directions: Directions) -> View:
        """The graph with only the edges of ``mask`` ``[E]`` bool, to be handed to :meth:`run`.

        Args:
            mask: The edges that remain.
            directions: How it was drawn; both directions of an edge ``"together"`` leave a symmetric graph symmetric.
        """
        symmetric = directions == "together" and self.graph.is_undirected
        return View(self.graph, self.patterns, mask, self.graph.subgraph(mask), symmetric=symmetric)

    def run(self, view: View | Data) -> Tensor:
        """Logits ``[N, C]`` on a view, or on any other graph over the same nodes."""
        self.view = view if isinstance(view, View) else None
        try:
            return self.model.run(view.data if isinstance(view, View) else view)
        finally:
            self.view = None

    def parameters_changed(self) -> None:
        """Forget what was computed from the buffers' weights."""
        self._projected.clear()

    # What the model's hooks ask while a pass runs.

    def inverse_degree(self, edges: Tensor) -> Tensor | None:
        """1 / (D + 1) if ``edges`` are those of this pass's view and nothing else."""
        if self.view is None or edges is not self.view.edges or self.model.config.weighted_degree:
            return None
        return self.view.inverse_degree

    def add_term(self, aggregated: Tensor, block: int, hidden: Sequence[Tensor], inverse: Tensor) -> Tensor:
        """``aggregated`` plus the block's term, ``[N, width]``, as one fused operation."""
        module = cast(AggregationBuffer, self.model.blocks[block])
        read = list(hidden) if module.reads_all else [hidden[-1]]
        total: Tensor | None = None
        start = 0
        for h in read:
            rows = slice(start, start := start + h.size(1))
            if total is None and h is self.graph.x:
                total = self._projection(module, block, rows)
            else:
                weight = module.weight[rows]
                total = h @ weight if total is None else torch.addmm(total, h, weight)
        assert total is not None
        if module.bias is not None:
            total = total + module.bias
        return torch.addcmul(aggregated, inverse, total) if module.divides_by_degree else aggregated + total

    def _projection(self, module: AggregationBuffer, block: int, rows: slice) -> Tensor:
        """X times the part of a block's weight that reads X; shared by the passes of a step.

        The evaluation pass often asks first, without gradients, for what the next step then differentiates.
        """
        if block not in self._projected:
            with torch.enable_grad():
                self._projected[block] = self.features @ module.weight[rows]
        return self._projected[block]

    def made_hops(self, index: int) -> bool:
        """Whether layer ``index`` has added the terms of its hops itself."""
        return self._hops_made_by == index

    # The layers.

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Inside, the model's layers run in their fast form whenever :meth:`run` has a view for them."""
        changed: list[nn.Module] = []
        modules = dict(self.model.base.named_modules())
        try:
            for index, spec in enumerate(self.model.layers):
                conv = modules[spec.name]
                fast = self._form(conv, index)
                if fast is not None and "forward" not in conv.__dict__:
                    changed.append(conv)
                    conv.__dict__["forward"] = _Switch(self, index, conv, fast)
            self.model._accelerator = self
            yield
        finally:
            self.model._accelerator = None
            for conv in changed:
                del conv.__dict__["forward"]

    def _form(self, conv: nn.Module, index: int) -> FastForm | None:
        if self.model.layers[index].kind == "hops":
            return (lambda p, x: self._sgc(conv, index, p, x)) if sgc_propagation(conv) else None
        return fast_form(conv)

    def _sgc(self, conv: nn.Module, index: int, p: Pass, x: Tensor) -> Tensor:
        """SGConv with the linear map first and a buffer at each hop, in one recurrence."""
        sgc = cast(SGConv, conv)
        state = self.model._pass
        assert state is not None
        t = p.mapped(x, sgc.lin.weight)
        hidden = [*state.hidden, t]
        for hop in range(sgc.K):
            aggregated = p.view.propagate(t, "sym", loops=True)
            t = self.add_term(aggregated, self.model._starts[index] + hop, hidden, p.view.inverse_degree)
            hidden.append(t)
        self._hops_made_by = index
        return t if sgc.lin.bias is None else t + sgc.lin.bias

    def pass_of(self, index: int, x: Tensor) -> Pass:
        """What layer ``index`` needs to run on ``x`` over the current view."""
        assert self.view is not None
        is_features = x is self.graph.x

        def linear(h: Tensor, weight: Tensor) -> Tensor:
            return self.features @ weight.t() if h is self.graph.x else h @ weight.t()

        def constant(key: str, compute: Callable[[], Tensor]) -> Tensor:
            if (index, key) not in self._constants:
                with torch.no_grad():
                    self._constants[index, key] = compute()
            return self._constants[index, key]

        return Pass(self.view, linear, constant if is_features else None)


class _Switch:
    """Stands in for a layer's ``forward`` while a runner is installed; falls back to the layer's own."""

    def __init__(self, runner: FastPasses, index: int, conv: nn.Module, fast: FastForm) -> None:
        self.runner, self.index, self.fast = runner, index, fast
        self.plain: Callable[..., Any] = conv.forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        view = self.runner.view
        self.runner._hops_made_by = -1
        extra = [*args[2:], *(value for name, value in kwargs.items() if name not in ("x", "edge_index"))]
        edges = args[1] if len(args) > 1 else kwargs.get("edge_index")
        inside = view is not None and self.runner.model._pass is not None
        if not inside or view is None or edges is not view.edges or any(value is not None for value in extra):
            return self.plain(*args, **kwargs)
        x = args[0] if args else kwargs["x"]
        return self.fast(self.runner.pass_of(self.index, x), x)


def can_run(model: BufferedGNN, graph: Graph) -> bool:
    """Whether the fast path may be taken: on a CPU, in single or double precision, unweighted adjacency."""
    if graph.x.device.type != "cpu" or graph.x.dtype not in (torch.float32, torch.float64):
        return False
    if any(parameter.dtype != graph.x.dtype for parameter in model.buffer_parameters()):
        return False
    adjacency = graph.data.get("adj_t", graph.data.get("edge_index"))
    return not is_sparse_adjacency(adjacency)
