"""What happens inside a pass of a model with buffers: plain ``nn.Module`` hooks on its layers.

Plain hooks, as PyG's own are skipped under ``torch.compile`` and ``torch.export``; methods of a class and not closures,
so that a model with hooks can be copied and pickled.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from torch import Tensor, nn

from aggbuffer import hops
from aggbuffer.buffer import Aggregate
from aggbuffer.errors import ModelError
from aggbuffer.graph import coo, in_degree, is_sparse_adjacency
from aggbuffer.layers import LayerSpec, edge_position
from aggbuffer.perturb import DropoutMask

if TYPE_CHECKING:
    from aggbuffer.model import BufferedGNN


class Accelerator(Protocol):
    """What :mod:`aggbuffer.fast` answers for while it runs a pass; without one, the plain formula is computed."""

    def inverse_degree(self, edges: Tensor) -> Tensor | None:
        """1 / (D + 1), ``[N, 1]``, where it is known for these edges."""

    def add_term(
        self,
        aggregated: Tensor,
        block: int,
        hidden: Sequence[Tensor],
        inverse: Tensor,
        aggregate: Aggregate | None,
    ) -> Tensor:
        """``aggregated`` plus the term of block number ``block``."""

    def aggregation(self, edges: Tensor) -> Aggregate | None:
        """A GCN layer's aggregation over these edges, where they are known."""

    def dropped(self, hidden: Tensor, dropped: Tensor, mask: DropoutMask) -> None:
        """To be told what the next layer receives for H."""

    def made_hops(self, index: int) -> bool:
        """Whether layer ``index`` has added the terms of its hops itself."""


class Masks(Protocol):
    """Dropout masks from elsewhere than a generator."""

    def mask(self, layer: int, x: Tensor, ratio: float) -> DropoutMask:
        """The mask for what layer number ``layer`` receives, ``x`` ``[N, width]``."""
        ...


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

    def inverse_degree(
        self, edges: Tensor, weight: Tensor | None, flow: str, like: Tensor, loops: Tensor | None = None
    ) -> Tensor:
        """1 / (D + I) of the graph that this pass sees, ``[N, 1]``; computed once while layers share their edges.

        Where self-loops have weights, ``loops`` ``[N]``, those stand in the place of I.
        """
        if self._inverse is None or self._edges is not edges or self._weight is not weight or self._flow != flow:
            if self.weighted and weight is None and is_sparse_adjacency(edges):
                weight = coo(edges)[2]
            degree = in_degree(edges, like.size(0), flow=flow, weight=weight if self.weighted else None)
            self._edges, self._weight, self._flow = edges, weight, flow
            wide = degree.to(torch.promote_types(degree.dtype, like.dtype))  # a float64 model divides in float64
            self._inverse = (1.0 / (wide + (1.0 if loops is None else loops))).to(like.dtype).unsqueeze(-1)
        return self._inverse


class LayerHooks:
    """The plain ``nn.Module`` hooks of one layer: they act only inside a pass of the model that owns them."""

    def __init__(self, owner: BufferedGNN, index: int, spec: LayerSpec, conv: nn.Module) -> None:
        self.owner, self.index, self.spec = owner, index, spec
        self.flow = str(getattr(conv, "flow", "source_to_target"))
        self.names = list(inspect.signature(conv.forward).parameters)
        self.weight_position = self.names.index("edge_weight") if "edge_weight" in self.names else None
        position = edge_position(conv)
        assert position is not None  # discovery has refused layers without
        self.edge_position = position
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
        state.hidden.append(x.clone() if self.spec.overwritten else x)
        changed = False
        if self.owner._loops is not None:
            args, kwargs, changed = *self._with_loops(args, kwargs, self.owner._loops), True
        if self.spec.kind == "mlp":
            self.before_mlp = state, self._inverse_degree(state, args, kwargs)
        ratio, generator = self.owner._dropout
        if ratio == 0 or self.index == 0:
            return (args, kwargs) if changed else None
        if generator is None or isinstance(generator, torch.Generator):
            mask = DropoutMask.draw(x, ratio, generator)
        else:
            mask = generator.mask(self.index, x, ratio)
        dropped = mask.apply(x)
        if self.owner._accelerator is not None:
            self.owner._accelerator.dropped(x, dropped, mask)
        return ((dropped, *args[1:]), kwargs) if args else (args, {**kwargs, "x": dropped})

    def enter_mlp(self, mlp: nn.Module, args: tuple[Any, ...]) -> Any:
        """Add the term to the aggregation that is about to enter the layer's own MLP."""
        if self.before_mlp is None:
            return None
        (state, inverse), self.before_mlp = self.before_mlp, None
        return (self._corrected(args[0], state, inverse, None), *args[1:])

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
        aggregate = self._aggregate(conv, args, kwargs) if self.owner.config.block == "agg" else None
        first = self._corrected(first, state, self._inverse_degree(state, args, kwargs), aggregate)
        return (first, *rest) if isinstance(output, tuple) else first

    def _corrected(
        self, aggregated: Tensor, state: ForwardPass, inverse: Tensor, aggregate: Aggregate | None
    ) -> Tensor:
        """The aggregation with this layer's term added."""
        if self.owner._accelerator is not None:
            block = self.owner._starts[self.index]
            return self.owner._accelerator.add_term(aggregated, block, state.hidden, inverse, aggregate)
        return aggregated + cast(Tensor, self.owner._blocks_of(self.index)[0](state.hidden, inverse, aggregate))

    def _aggregate(self, conv: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Aggregate:
        """The layer's own aggregation, for a block that repeats it."""
        edges, weight = self._edges(args, kwargs), self._weight(args, kwargs)
        accelerator = self.owner._accelerator
        known = accelerator.aggregation(edges) if accelerator is not None and weight is None else None
        return hops.normalised(conv, args[0] if args else kwargs["x"], edges, weight) if known is None else known

    def _with_loops(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], loops: Tensor
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The layer's arguments with a self-loop of its own at every node, to which the layer adds no other.

        ``loops`` ``[N]`` are its weights, in units of the self-loop that the graph has there already, if it has one.
        """
        edges, weight = self._edges(args, kwargs), self._weight(args, kwargs)
        source, target, value = coo(edges)
        if value is None:
            value = torch.ones(source.size(0), dtype=loops.dtype, device=loops.device) if weight is None else weight
        value, between = value.to(loops.dtype), source != target
        own = value[~between]
        if is_sparse_adjacency(edges):  # in which PyG adds its own to a torch matrix, and puts it into a SparseTensor
            own = own + 1 if isinstance(edges, Tensor) else torch.ones_like(own)
        loops = loops.index_put((target[~between],), loops[target[~between]] * own)
        nodes = torch.arange(loops.numel(), device=source.device)
        ends = [torch.cat([end[between].long(), nodes]) for end in (source, target)]
        known = dict(zip(self.names, args, strict=False)) | kwargs
        known[self.names[self.edge_position]] = torch.stack(ends)
        known["edge_weight"] = torch.cat([value[between], loops])
        return (known.pop(self.names[0]),), known

    def _edges(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        at = self.edge_position
        return cast(Tensor, args[at] if len(args) > at else kwargs[self.names[at]])

    def _weight(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        at = self.weight_position
        if at is None:
            return None
        return args[at] if len(args) > at else kwargs.get("edge_weight")

    def _inverse_degree(self, state: ForwardPass, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        edges, weight = self._edges(args, kwargs), self._weight(args, kwargs)
        accelerator = self.owner._accelerator
        usual = self.flow == "source_to_target"
        known = accelerator.inverse_degree(edges) if accelerator is not None and usual else None
        loops = self.owner._loops
        return state.inverse_degree(edges, weight, self.flow, state.hidden[-1], loops) if known is None else known

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
