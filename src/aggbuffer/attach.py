"""Attach buffers to a trained model, switch them off for a while, and detach them without a trace."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from aggbuffer import hops
from aggbuffer.buffer import AggregationBuffer
from aggbuffer.config import BufferConfig
from aggbuffer.errors import GraphError, ModelError, ModelTypeError
from aggbuffer.forward import Forward, checked_logits, default_forward
from aggbuffer.graph import Graph, coo, in_degree, is_sparse_adjacency
from aggbuffer.layers import LayerSpec, discover, forked_randomness
from aggbuffer.perturb import dropout


def attach(
    gnn: nn.Module, data: object, config: BufferConfig | None = None, *, forward: Forward | None = None
) -> BufferedGNN:
    """Add an aggregation buffer to every message-passing layer of a trained GNN.

    The buffers start at zero, so the result answers exactly as ``gnn`` does. The base model is neither copied nor
    renamed; it is frozen and kept in evaluation mode until :func:`detach` gives it back as it was.

    Args:
        gnn: Any trained PyG model for one homogeneous graph.
        data: The graph, a ``Data`` or a pair ``(x, edge_index)``; one evaluation pass on it finds the layers.
        config: Where and how the buffer acts.
        forward: ``forward(model, data) -> logits``, how the library calls the model when it does so itself. The
            default is ``model(data.x, data.edge_index)`` with the edge weights and attributes that the signature
            names.

    Raises:
        AggBufferError: If model or graph cannot be used; nothing has been changed then.

    Example:
        >>> model = aggbuffer.attach(gnn, data)
        >>> result = aggbuffer.fit(model, data)
    """
    config = BufferConfig() if config is None else config
    check_carries_none(gnn)
    graph = Graph.of(data)
    call = default_forward if forward is None else forward
    if config.weighted_degree:
        _check_weights(graph)
    specs, logits = discover(gnn, graph, lambda: checked_logits(call(gnn, graph.data), graph.num_nodes), config)
    model = BufferedGNN(gnn, specs, config, call, graph.x.size(1))
    try:
        _freeze(model, graph, logits)
    except BaseException:
        model._release()
        raise
    return model


def attach_known(
    gnn: nn.Module,
    specs: list[LayerSpec],
    config: BufferConfig,
    num_features: int,
    *,
    forward: Forward | None = None,
    freeze: bool = True,
) -> BufferedGNN:
    """Attach without a graph, to layers that an earlier :func:`attach` found in this model; the caller has checked it.

    Args:
        gnn: The base model.
        specs: Its layers in the order they run.
        config: Where and how the buffer acts.
        num_features: Width of the node features.
        forward: As for :func:`attach`.
        freeze: Whether that attach could freeze the base without changing a bit of its answers.
    """
    model = BufferedGNN(gnn, specs, config, default_forward if forward is None else forward, num_features)
    if freeze:
        gnn.requires_grad_(False)
    return model


def detach(model: BufferedGNN) -> nn.Module:
    """Give back the base model: the very object, with its hooks, modes and ``requires_grad`` as before attach."""
    if hasattr(model, "_orig_mod"):
        model = cast(Any, model)._orig_mod
    if not isinstance(model, BufferedGNN):
        raise ModelTypeError(f"The model is a {type(model).__name__}; only a BufferedGNN has buffers to detach.")
    return model._release()


def _freeze(model: BufferedGNN, graph: Graph, before: Tensor) -> None:
    """Take the base's parameters out of training, and see for ourselves that attaching changed no bit.

    torch may pick another kernel for a parameter that needs no gradient (a matrix product in three dimensions does,
    and so a jumping-knowledge LSTM), with answers that differ in the last bit. Such a base keeps its
    ``requires_grad``: nothing trains it all the same, as ``fit`` asks for the gradients of the buffers only.
    """
    model.base.requires_grad_(False)
    with torch.no_grad(), forked_randomness(graph.x.device):
        torch.rand(1, device=graph.x.device)  # so that a dropout that is always on draws another mask than before
        if torch.equal(model.run(graph.data), before):
            return
        model._restore_requires_grad()
        after = model.run(graph.data)
    if not torch.allclose(after, before, rtol=1e-3, atol=1e-5, equal_nan=True):
        raise ModelError(
            "The model answers the same graph differently from one call to the next in evaluation mode; make its "
            "dropout follow self.training (torch.nn.functional.dropout needs training=self.training)."
        )


class Accelerator(Protocol):
    """What :mod:`aggbuffer.fast` answers for while it runs a pass; without one, the plain formula is computed."""

    def inverse_degree(self, edges: Tensor) -> Tensor | None:
        """1 / (D + 1), ``[N, 1]``, where it is known for these edges."""

    def add_term(self, aggregated: Tensor, block: int, hidden: Sequence[Tensor], inverse: Tensor) -> Tensor:
        """``aggregated`` plus the term of block number ``block``."""

    def made_hops(self, index: int) -> bool:
        """Whether layer ``index`` has added the terms of its hops itself."""


class ForwardPass:
    """What the layers of one forward pass share.

    Attributes:
        hidden: H(0) … so far, each ``[N, d_k]``.
    """

    def __init__(self, weighted: bool) -> None:
        self.hidden: list[Tensor] = []
        self.weighted = weighted
        self._edges: Tensor | None = None
        self._weight: Tensor | None = None
        self._flow = ""
        self._inverse: Tensor | None = None

    def inverse_degree(self, edges: Tensor, weight: Tensor | None, flow: str, like: Tensor) -> Tensor:
        """1 / (D + 1) of the graph that this pass sees, ``[N, 1]``; computed once while layers share their edges."""
        if self._inverse is None or self._edges is not edges or self._weight is not weight or self._flow != flow:
            if self.weighted and weight is None and is_sparse_adjacency(edges):
                weight = coo(edges)[2]
            degree = in_degree(edges, like.size(0), flow=flow, weight=weight if self.weighted else None)
            self._edges, self._weight, self._flow = edges, weight, flow
            wide = degree.to(torch.promote_types(degree.dtype, like.dtype))  # a float64 model divides in float64
            self._inverse = (1.0 / (wide + 1.0)).to(like.dtype).unsqueeze(-1)
        return self._inverse


class _LayerHooks:
    """The plain ``nn.Module`` hooks of one layer: they act only inside a pass of the model that owns them."""

    def __init__(self, owner: BufferedGNN, index: int, spec: LayerSpec, conv: nn.Module) -> None:
        self.owner, self.index, self.spec = owner, index, spec
        self.flow = str(getattr(conv, "flow", "source_to_target"))
        names = list(inspect.signature(conv.forward).parameters)
        self.weight_position = names.index("edge_weight") if "edge_weight" in names else None
        self.names = names
        self.before_mlp: tuple[ForwardPass, Tensor] | None = None
        self.handles = [
            conv.register_forward_pre_hook(self.enter, with_kwargs=True),
            conv.register_forward_hook(self.leave, with_kwargs=True),
        ]
        if spec.kind == "mlp":
            self.handles.append(getattr(conv, spec.mlp).register_forward_pre_hook(self.enter_mlp))

    def enter(self, conv: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note H(l-1) undropped; hand the layer its dropped version where the buffer is being trained so."""
        state = self.owner._pass
        self.before_mlp = None  # an exception may have kept an earlier pass from using it up
        if state is None:
            return None
        x = args[0] if args else kwargs["x"]
        if len(state.hidden) != self.index:
            raise ModelError(
                f"The layer {self.spec.name!r} ran as number {len(state.hidden) + 1}, but as number {self.index + 1} "
                "when the buffers were attached; a buffer needs the same layers in the same order on every pass."
            )
        if x.size(-1) != self.spec.in_width:
            raise ModelError(
                f"The layer {self.spec.name!r} received {x.size(-1)} features per node; expected {self.spec.in_width}. "
                "Pass a graph with the features that the model was trained on."
            )
        state.hidden.append(x)
        if self.spec.kind == "mlp":
            self.before_mlp = state, self._inverse_degree(state, args, kwargs)
        ratio, generator = self.owner._dropout
        if ratio == 0 or self.index == 0:
            return None
        dropped = dropout(x, ratio, generator)
        return ((dropped, *args[1:]), kwargs) if args else (args, {**kwargs, "x": dropped})

    def enter_mlp(self, mlp: nn.Module, args: tuple[Any, ...]) -> Any:
        """Add the term to the aggregation that is about to enter the layer's own MLP."""
        if self.before_mlp is None:
            return None
        (state, inverse), self.before_mlp = self.before_mlp, None
        return (self._corrected(args[0], state, inverse), *args[1:])

    def leave(self, conv: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        """Add the term to the layer's output."""
        state = self.owner._pass
        if state is None or self.spec.kind == "mlp":
            self.before_mlp = None
            return output
        if self.spec.kind == "hops":
            accelerator = self.owner._accelerator
            if accelerator is not None and accelerator.made_hops(self.index):
                return output
            return output + self._hop_correction(state, conv, args, kwargs)
        first, *rest = output if isinstance(output, tuple) else (output,)
        first = self._corrected(first, state, self._inverse_degree(state, args, kwargs))
        return (first, *rest) if isinstance(output, tuple) else first

    def _corrected(self, aggregated: Tensor, state: ForwardPass, inverse: Tensor) -> Tensor:
        """The aggregation with this layer's term added."""
        if self.owner._accelerator is not None:
            return self.owner._accelerator.add_term(aggregated, self.owner._starts[self.index], state.hidden, inverse)
        block = self.owner._blocks_of(self.index)[0]
        return aggregated + cast(Tensor, block(state.hidden, inverse))

    def _edges(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        return cast(Tensor, args[1] if len(args) > 1 else kwargs[self.names[1]])

    def _weight(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        at = self.weight_position
        if at is None:
            return None
        return args[at] if len(args) > at else kwargs.get("edge_weight")

    def _inverse_degree(self, state: ForwardPass, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        edges, weight = self._edges(args, kwargs), self._weight(args, kwargs)
        accelerator = self.owner._accelerator
        known = None if accelerator is None else accelerator.inverse_degree(edges)
        return state.inverse_degree(edges, weight, self.flow, state.hidden[-1]) if known is None else known

    def _hop_correction(
        self, state: ForwardPass, conv: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Tensor:
        inverse = self._inverse_degree(state, args, kwargs)
        blocks = self.owner._blocks_of(self.index)
        hidden = list(state.hidden)
        x = args[0] if args else kwargs["x"]
        extra = {**dict(zip(self.names, args, strict=False)), **kwargs}
        recurrence = hops.unroll(conv, x, self._edges(args, kwargs), self._weight(args, kwargs), extra)
        return recurrence.correction(lambda k, states: blocks[k]([*hidden, *states], inverse))


class BufferedGNN(nn.Module):
    """A frozen base GNN with an aggregation buffer in every message-passing layer; called exactly as the base is.

    Calling ``model.base`` itself always gives the base's own output. The base stays in evaluation mode, whatever
    mode this module is put into, so that none of its statistics move while buffers are trained.
    """

    base: nn.Module

    def __init__(
        self,
        base: nn.Module,
        specs: list[LayerSpec],
        config: BufferConfig,
        forward: Forward,
        num_features: int,
    ) -> None:
        super().__init__()
        self.config = config
        self.layers = tuple(specs)
        self.num_features = num_features
        self.forward_call = forward
        self._enabled = True
        self._pass: ForwardPass | None = None
        self._accelerator: Accelerator | None = None
        self._dropout: tuple[float, torch.Generator | None] = (0.0, None)
        modules = dict(base.named_modules())
        self._starts, blocks = _make_blocks(specs, modules, config)
        self._modes = [(module, module.training) for module in base.modules()]
        self._requires_grad = [(parameter, parameter.requires_grad) for parameter in base.parameters()]
        self.base = base
        self.blocks = nn.ModuleList(blocks)
        base.eval()
        self._hooks = [_LayerHooks(self, i, spec, modules[spec.name]) for i, spec in enumerate(specs)]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The base's forward with every aggregation corrected."""
        if not self._enabled:
            return self.base(*args, **kwargs)
        self._pass = ForwardPass(self.config.weighted_degree)
        try:
            return self.base(*args, **kwargs)
        finally:
            self._pass = None

    def train(self, mode: bool = True) -> BufferedGNN:
        """Set the mode of this module and its blocks; the base stays in evaluation mode."""
        super().train(mode)
        self.base.eval()
        return self

    @contextmanager
    def disabled(self) -> Iterator[BufferedGNN]:
        """Inside, the model answers exactly as its base."""
        before, self._enabled = self._enabled, False
        try:
            yield self
        finally:
            self._enabled = before

    @contextmanager
    def dropping(self, ratio: float, generator: torch.Generator | None = None) -> Iterator[BufferedGNN]:
        """Inside, every layer but the first receives its input with a share ``ratio`` of the entries dropped."""
        before, self._dropout = self._dropout, (ratio, generator)
        try:
            yield self
        finally:
            self._dropout = before

    def buffer_parameters(self) -> list[nn.Parameter]:
        """The parameters that the library added, and no others."""
        return list(self.blocks.parameters())

    @property
    def num_buffer_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.buffer_parameters())

    def run(self, data: object) -> Tensor:
        """Logits ``[N, C]`` on a graph, called as ``attach`` was told to."""
        return checked_logits(self.forward_call(self, cast(Any, data)), cast(Any, data).x.size(0))

    def _blocks_of(self, index: int) -> list[AggregationBuffer]:
        start = self._starts[index]
        return [cast(AggregationBuffer, self.blocks[i]) for i in range(start, start + self.layers[index].hops)]

    def _release(self) -> nn.Module:
        for hooks in self._hooks:
            for handle in hooks.handles:
                handle.remove()
        for module, training in self._modes:
            module.training = training
        self._restore_requires_grad()
        self._hooks, self._enabled = [], False
        return self.base

    def _restore_requires_grad(self) -> None:
        for parameter, requires_grad in self._requires_grad:
            parameter.requires_grad_(requires_grad)

    def extra_repr(self) -> str:
        return f"{len(self.layers)} layers, {self.num_buffer_parameters:,} buffer parameters"


def _make_blocks(
    specs: list[LayerSpec], modules: dict[str, nn.Module], config: BufferConfig
) -> tuple[list[int], list[AggregationBuffer]]:
    """One block for every aggregation, in order, and where each layer's blocks start."""
    starts: list[int] = []
    blocks: list[AggregationBuffer] = []
    widths: list[int] = []
    for spec in specs:
        starts.append(len(blocks))
        widths.append(spec.in_width)
        reads_first = spec.kind == "hops" and hops.reads_first(modules[spec.name])
        for hop in range(spec.hops):
            states = (hop + int(reads_first)) if spec.kind == "hops" else 0
            read = [*widths, *([spec.out_width] * states)]
            blocks.append(
                AggregationBuffer(
                    read,
                    spec.out_width,
                    block=config.block,
                    bias=config.bias,
                    device=spec.device,
                    dtype=spec.dtype,
                )
            )
    return starts, blocks


def check_carries_none(gnn: object) -> None:
    """Refuse a model that carries buffers already."""
    if isinstance(gnn, BufferedGNN):
        raise ModelTypeError("The model already carries buffers; detach it first.")
    if isinstance(gnn, nn.Module) and any(_owner_of(module) is not None for module in gnn.modules()):
        raise ModelError("The model, or a part of it, already carries buffers; detach those first.")


def _owner_of(module: nn.Module) -> BufferedGNN | None:
    for hook in module._forward_pre_hooks.values():
        holder = getattr(hook, "__self__", None)
        if isinstance(holder, _LayerHooks):
            return holder.owner
    return None


def _check_weights(graph: Graph) -> None:
    weight = graph.data.get("edge_weight")
    if weight is not None and bool((weight < 0).any()):
        raise GraphError("weighted_degree=True needs edge weights of at least 0; found negative ones.")
