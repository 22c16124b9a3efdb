"""The passes of a training step of the buffers, with what never changes computed once.

The base is frozen and the features are constant, so the first layer's linear map and its clean aggregation are
constants of the whole run, and the products of the features with the buffers' weights are shared by the clean, the
perturbed and the evaluation pass of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, Linear, SAGEConv, SGConv

from aggbuffer.buffer import Aggregate, AggregationBuffer
from aggbuffer.fast.changes import writes
from aggbuffer.fast.features import Features
from aggbuffer.fast.layers import FastForm, Pass, fast_form, is_as_built, sgc_propagation
from aggbuffer.fast.runner import FastLayers, covers
from aggbuffer.fast.tall import NARROW, joined, joined_dropped, times
from aggbuffer.fast.views import View
from aggbuffer.graph import Graph
from aggbuffer.perturb import DropoutMask

if TYPE_CHECKING:
    from aggbuffer.model import BufferedGNN

_MOST_TO_CHECK = 2**31  # bytes of the messages of a plain pass


class FastPasses(FastLayers):
    """Runs a model with buffers on a graph, on parts of it, and on any other graph over the same nodes.

    Args:
        model: The model.
        graph: The whole graph.
        features: Its features, where they have been looked at before.
        keep_first: Keep the first corrected aggregation of the whole graph too, as no buffer trains.
    """

    def __init__(
        self, model: BufferedGNN, graph: Graph, *, features: Features | None = None, keep_first: bool = False
    ) -> None:
        super().__init__(graph, features, differentiable=not keep_first)
        self._own(model, keep_first=keep_first)

    def _own(self, model: BufferedGNN, *, keep_first: bool = False) -> None:
        """What a pass needs besides the graph."""
        self.model, self._keep_first = model, keep_first
        self._hops_made_by = -1
        self._projected: dict[int, Tensor] = {}
        self._beside: tuple[Tensor, int, Tensor] | None = None  # H, block, and what of its term H has given already
        self._dropped: tuple[Tensor, Tensor, DropoutMask] | None = None  # H, what a layer received for it, and how
        self._fresh: Tensor | None = None
        self._constants: dict[tuple[nn.Module, str], tuple[Tensor, int]] = {}  # and the writes to each, when made

    def run(self, view: View | Data) -> Tensor:
        """Logits ``[N, C]``."""
        known = isinstance(view, View)
        self.forget_pass()
        with self.over(view if known else None), self.model.plainly():
            return self.model.run(view.data if known else view)

    def forget_pass(self) -> None:
        """Let go of what the layers of the last pass noted for each other."""
        self._beside = self._dropped = self._fresh = None

    @property
    def weighs_loops(self) -> bool:
        """Whether every layer adds its self-loops here, and not by itself, as one does that is called with weights."""
        modules = dict(self.model.base.named_modules())
        layers = [(modules[spec.name], spec.kind) for spec in self.model.layers]
        # Over a whole graph also layers without a fast form are kept; those add loops by themselves.
        if not all(
            sgc_propagation(conv) if kind == "hops" else isinstance(conv, GCNConv) and fast_form(conv) is not None
            for conv, kind in layers
        ):
            return False
        with self.ready(), self.model.disabled(), torch.no_grad():
            self.run(self.whole)
        return self.left_alone.isdisjoint(conv for conv, _ in layers)

    def parameters_changed(self) -> None:
        """Forget what was computed from the buffers' weights."""
        self._projected.clear()

    def adopt(self, other: FastPasses, names: Container[str]) -> None:
        """Take over what another one over the same features has computed from them alone."""
        self._projected.update(other._projected)
        self._constants.update({key: value for key, value in other._constants.items() if key[1] in names})

    def keeps_memory_of(self, tensor: Tensor) -> bool:
        """Whether a tensor shares its memory with a constant, which a write into it would spoil."""
        return any(_place(tensor) == _place(kept) for kept, _ in self._constants.values())

    @contextmanager
    def ready(self) -> Iterator[None]:
        """The context in which all passes are made."""
        modules = dict(self.model.base.named_modules())
        forms = {module: fast_form(module) for module in modules.values() if hasattr(module, "fast_form")}
        forms |= {modules[spec.name]: self._form(modules[spec.name], i) for i, spec in enumerate(self.model.layers)}
        fast = {conv: form for conv, form in forms.items() if form is not None}
        maps = [module for module in modules.values() if type(module) in (nn.Linear, Linear)]
        with self.installed(fast, maps):
            self.model._accelerator = self
            try:
                yield
            finally:
                self.model._accelerator = None

    # What the model's hooks ask while a pass runs.

    def inverse_degree(self, edges: Tensor) -> Tensor | None:
        """1 / (D + 1) if ``edges`` are those of this pass's view and nothing else."""
        if self.view is None or edges is not self.view.edges or self.model.config.weighted_degree:
            return None
        return self.view.inverse_degree

    def aggregation(self, edges: Tensor) -> Aggregate | None:
        """GCN's aggregation if ``edges`` are those of this pass's view."""
        view = self.view
        if view is None or edges is not view.edges:
            return None
        return lambda x: view.propagate(x, "sym", loops=True)

    def add_term(
        self,
        aggregated: Tensor,
        block: int,
        hidden: Sequence[Tensor],
        inverse: Tensor,
        aggregate: Aggregate | None = None,
    ) -> Tensor:
        """``aggregated`` plus the block's term, ``[N, width]``, as one fused operation."""
        if self._keep_first and block == 0 and any(aggregated is kept for kept, _ in self._constants.values()):
            constant = self._constants_of(self.model)
            return constant("first", lambda: self._added(aggregated, block, hidden, inverse, aggregate))
        return self._added(aggregated, block, hidden, inverse, aggregate)

    def _added(
        self,
        aggregated: Tensor,
        block: int,
        hidden: Sequence[Tensor],
        inverse: Tensor,
        aggregate: Aggregate | None,
    ) -> Tensor:
        module = cast(AggregationBuffer, self.model.blocks[block])
        read = list(hidden) if module.reads_all else [hidden[-1]]
        total: Tensor | None = None
        start = 0
        for number, h in enumerate(read, 1):
            rows = slice(start, start := start + h.size(1))
            if total is None and h is self.graph.x:
                total = self._projection(module, block, rows)
            elif number == len(read) and (given := self._given(h, block)) is not None:
                total = given if total is None else total + given
            else:
                product = times(h, module.weight[rows])
                total = product if total is None else total + product
        assert total is not None
        if module.bias is not None:
            total = total + module.bias
        if module.block == "agg":
            assert aggregate is not None
            return aggregated + aggregate(total)
        if not module.divides_by_degree:
            return aggregated + total
        if aggregated is self._fresh:
            return aggregated.addcmul_(inverse, total)
        return torch.addcmul(aggregated, inverse, total)

    def dropped(self, hidden: Tensor, dropped: Tensor, mask: DropoutMask) -> None:
        """Note what the next layer receives for H."""
        self._dropped = hidden, dropped, mask

    def made_hops(self, index: int) -> bool:
        """Whether layer ``index`` has added the terms of its hops itself."""
        made, self._hops_made_by = self._hops_made_by == index, -1
        return made

    def _projection(self, module: AggregationBuffer, block: int, rows: slice) -> Tensor:
        """X times the part of a block's weight that reads X; shared by the passes of a step.

        The evaluation pass often asks first, without gradients, for what the next step then differentiates.
        """
        if block not in self._projected:
            with torch.set_grad_enabled(not self._keep_first):
                self._projected[block] = self.features @ module.weight[rows]
        return self._projected[block]

    def _constants_of(self, conv: nn.Module) -> Callable[[str, Callable[[], Tensor]], Tensor]:
        def constant(name: str, compute: Callable[[], Tensor]) -> Tensor:
            kept = self._constants.get((conv, name))
            if kept is None or writes(kept[0]) != kept[1]:  # a model may write into what a layer gave it
                with torch.inference_mode(False), torch.no_grad():  # in that mode, writes are not counted
                    value = compute()
                kept = self._constants[conv, name] = value, writes(value)
            return kept[0]

        return constant

    def _form(self, conv: nn.Module, index: int) -> FastForm | None:
        if self.model.layers[index].kind == "hops":
            return (lambda p, x: self._sgc(cast(SGConv, conv), index, p, x)) if sgc_propagation(conv) else None
        form = fast_form(conv)
        if form is not None:
            return lambda p, x: self._noted(conv, form(self._joining(p, index, x), x))
        if self.model.layers[index].kind == "output" and is_as_built(conv):
            return lambda p, x: self._plain(conv, p, x)
        return None

    def _noted(self, conv: nn.Module, out: Tensor) -> Tensor:
        """Note an aggregation that nobody else holds, to which a term may be added in place.

        Of other layers, whose last step is a module of the user's, a hook may hold it.
        """
        is_ours = isinstance(conv, GCNConv | SAGEConv) or hasattr(conv, "fast_form")
        is_free = is_ours and not out.requires_grad and not self.keeps_memory_of(out)
        self._fresh = out if is_free else None
        return out

    def _plain(self, conv: nn.Module, p: Pass, x: Tensor) -> Tensor:
        """A layer without a fast form; what it makes of the features and the whole graph is computed once."""
        return p.once_on_whole("output", lambda: cast(Tensor, type(conv).forward(conv, x, p.view.edges)))

    def _joining(self, p: Pass, index: int, x: Tensor) -> Pass:
        """The same, but what the layer makes of H = ``x``, dropped or not, comes with what its buffer makes of H.

        A layer that aggregates first maps something else than ``x``, and its buffer's product stays its own.
        """
        state, block = self.model._pass, self.model._starts[index]
        if state is None or x is self.graph.x or self.model.layers[index].kind != "output":
            return p
        hidden, own = state.hidden[-1], cast(AggregationBuffer, self.model.blocks[block]).weight
        dropped = self._dropped if self._dropped is not None and self._dropped[1] is x else None
        if x is not hidden and (dropped is None or dropped[0] is not hidden):
            return p

        def linear(mapped: Tensor, weight: Tensor) -> Tensor:
            if mapped is not x or weight.size(0) > NARROW or weight.requires_grad or self._beside is not None:
                return p.linear(mapped, weight)
            rows, frozen = own[-x.size(1) :], weight.t()
            if dropped is None:
                out, given = joined(x, frozen, rows)
            else:
                mask = dropped[2]
                out, given = joined_dropped(hidden, x, lambda: mask.numbers(x.dtype), frozen, rows)
            self._beside = hidden, block, given
            return out

        return Pass(p.view, linear, p.constant)

    def _given(self, h: Tensor, block: int) -> Tensor | None:
        """The part of a block's term that ``h`` has given together with the layer."""
        if self._beside is None or self._beside[0] is not h or self._beside[1] != block:
            return None
        given, self._beside = self._beside[2], None
        return given

    def _sgc(self, conv: SGConv, index: int, p: Pass, x: Tensor) -> Tensor:
        """SGConv with the linear map first and a buffer at each hop, in one recurrence."""
        t = p.mapped(x, conv.lin.weight)
        state = self.model._pass
        hidden = [] if state is None else [*state.hidden, t]
        mapped = t
        for hop in range(conv.K):
            if hop == 0:
                t = p.once_on_whole("first hop", lambda: p.view.propagate(mapped, "sym", loops=True))
            else:
                t = p.view.propagate(t, "sym", loops=True)
            if state is not None:
                t = self.add_term(t, self.model._starts[index] + hop, hidden, p.view.inverse_degree)
                hidden.append(t)
        if state is not None:
            self._hops_made_by = index
        return t if conv.lin.bias is None else t + conv.lin.bias


def can_run(model: BufferedGNN, graph: Graph) -> bool:
    """Whether the fast path may be taken by this model on this graph."""
    if not covers(graph) or torch.is_autocast_enabled("cpu"):  # in which products come out in half precision
        return False
    return all(parameter.dtype == graph.x.dtype for parameter in model.buffer_parameters())


def too_large_to_check(model: BufferedGNN, graph: Graph) -> bool:
    """Whether a plain pass, to compare with, would cost what the fast path saves."""
    widest = max(max(spec.in_width, spec.out_width) for spec in model.layers)
    return graph.num_edges * widest * graph.x.element_size() > _MOST_TO_CHECK


def same_answers(expected: object, found: object) -> bool:
    """Whether both paths gave the same logits, but for rounding."""
    if not isinstance(expected, Tensor) or not isinstance(found, Tensor):
        return False
    finite = expected[expected.isfinite()]  # a NaN in the features of a first call must not decide for all others
    scale = max(1.0, finite.abs().max().item()) if finite.numel() else 1.0
    return expected.shape == found.shape and torch.allclose(found, expected, 1e-3, 1e-4 * scale, equal_nan=True)


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
