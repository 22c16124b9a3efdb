"""Convolutions over a view of the graph: the same results as PyG's, with the cheaper order of the two products.

The product with the adjacency and the linear map commute, so the one that leaves fewer columns goes first. Whatever
a layer's settings make of it that is not covered here, :func:`fast_form` answers None, and PyG's own layer runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, GINConv, Linear, MessagePassing, SAGEConv, SGConv

from aggbuffer.fast.views import Norm, View
from aggbuffer.hooks import LayerHooks

# What one multiplication and addition of a dense product costs, in units of gathering one number of a neighbour's row.
_PRODUCT_PER_GATHER = 0.16

LinearMap = Callable[[Tensor, Tensor], Tensor]
# PyG's own hooks, which act inside a layer's propagation.
_PYG = {
    f"{stage}_forward{when}_hooks"
    for stage in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for when in ("", "_pre")
}
_STEPS = ("message", "aggregate", "message_and_aggregate", "update")  # which fast forms do not call

FastForm = Callable[["Pass", Tensor], Tensor]


class Pass:
    """What a fast layer needs of the pass it runs in.

    Attributes:
        view: The graph.
        linear: ``linear(x, weight)`` is ``x @ weight.T``, quick where x is the constant features.
        sparse: Whether that is a sparse product, much cheaper than one with what an aggregation makes of ``x``.
        constant: ``constant(key, compute)`` computes once what no pass changes; only where the layer's input is such.
    """

    def __init__(
        self,
        view: View,
        linear: LinearMap,
        constant: Callable[[str, Callable[[], Tensor]], Tensor] | None,
        *,
        sparse: bool = False,
    ) -> None:
        self.view, self.linear, self.constant, self.sparse = view, linear, constant, sparse

    def mapped_aggregation(
        self, x: Tensor, linear: nn.Module, bias: Tensor | None, norm: Norm, *, loops: bool
    ) -> Tensor:
        """``Â x Wᵀ + b`` in the cheaper order."""
        weight = cast(Tensor, linear.weight)

        def compute() -> Tensor:
            if self._maps_first(*weight.shape):
                out = self.view.propagate(self.mapped(x, weight), norm, loops=loops)
            else:
                out = self.linear(self.view.propagate(x, norm, loops=loops), weight)
            if bias is None:
                return out
            return out + bias if out.requires_grad or bias.requires_grad else out.add_(bias)

        return self.once_on_whole(f"{norm} aggregation", compute)

    def once_on_whole(self, key: str, compute: Callable[[], Tensor]) -> Tensor:
        """What depends on the layer's input and the edges: computed once where the input is constant, on all edges."""
        return self.constant(key, compute) if self.constant is not None and self.view.is_whole else compute()

    def once(self, key: str, compute: Callable[[], Tensor]) -> Tensor:
        """What depends on the layer's input alone: computed once where that is constant."""
        return compute() if self.constant is None else self.constant(key, compute)

    def _maps_first(self, width: int, in_width: int) -> bool:
        """Whether to map before aggregating: gather ``width`` columns instead of ``in_width``."""
        if width <= in_width or self.sparse or self.constant is None:
            return width <= in_width or self.sparse
        # The mapped features are at hand: wider rows to gather, against the product of aggregated features.
        messages = 1 + self.view.num_edges / self.view.graph.num_nodes  # to a node
        return messages * (width - in_width) < _PRODUCT_PER_GATHER * width * in_width

    def mapped(self, x: Tensor, weight: Tensor) -> Tensor:
        """``x Wᵀ``."""
        return self.once("linear map", lambda: self.linear(x, weight))


def fast_form(conv: nn.Module) -> FastForm | None:
    """A function that computes ``conv(x, edges)`` over a view, or None if this layer is not covered.

    A layer of the user's own may bring one, also one that passes no messages: a method ``fast_form(p, x)``, whose
    result may be written into.
    """
    if not is_as_built(conv):
        return None
    if hasattr(conv, "fast_form"):
        return cast(FastForm, conv.fast_form)
    if type(conv) is GCNConv and conv.normalize and conv.add_self_loops and not conv.improved and conv.aggr == "add":
        return (lambda p, x: _gcn(cast(GCNConv, conv), p, x)) if is_plain(conv.lin, bias=False) else None
    if type(conv) is SAGEConv and conv.aggr == "mean" and not conv.project and not conv.normalize:
        plain = is_plain(conv.lin_l) and (not conv.root_weight or is_plain(conv.lin_r, bias=False))
        return (lambda p, x: _sage(cast(SAGEConv, conv), p, x)) if plain else None
    if type(conv) is GINConv and conv.aggr == "add":
        return lambda p, x: _gin(cast(GINConv, conv), p, x)
    return None


def sgc_propagation(conv: nn.Module) -> bool:
    """Whether the conv is an SGConv whose hops a view can make."""
    if type(conv) is not SGConv or not is_as_built(conv):
        return False
    return bool(conv.add_self_loops and conv.aggr == "add" and is_plain(conv.lin))


def is_as_built(conv: nn.Module) -> bool:
    """Whether nothing was hooked into the layer that its fast form would pass by, or that may write into its output."""
    if isinstance(conv, MessagePassing):
        if conv.flow != "source_to_target" or conv.decomposed_layers != 1 or conv.explain:
            return False
        if any(getattr(conv, name) for name in vars(conv) if name.endswith("_hooks") and name[1:] in _PYG):
            return False
        if any(step in vars(conv) for step in _STEPS) or (
            conv.aggr_module is not None and _has_hooks(conv.aggr_module)
        ):
            return False
    elif not hasattr(conv, "fast_form"):
        return False
    hooks = [*conv._forward_pre_hooks.values(), *conv._forward_hooks.values()]
    return all(isinstance(getattr(hook, "__self__", None), LayerHooks) for hook in hooks)


def is_plain(linear: nn.Module | Tensor, bias: bool | None = None) -> bool:
    """Whether a layer's linear map is PyG's own, with nothing around it: no adapter, no hook, no parametrisation."""
    if not isinstance(linear, Linear) or type(linear) is not Linear:
        return False
    if _has_hooks(linear):
        return False
    return bias is None or (linear.bias is not None) == bias


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _gcn(conv: GCNConv, p: Pass, x: Tensor) -> Tensor:
    return p.mapped_aggregation(x, conv.lin, conv.bias, "sym", loops=True)


def _sage(conv: SAGEConv, p: Pass, x: Tensor) -> Tensor:
    out = p.mapped_aggregation(x, conv.lin_l, conv.lin_l.bias, "mean", loops=False)
    if not conv.root_weight:
        return out
    return out + p.once("root", lambda: p.linear(x, conv.lin_r.weight))


def _gin(conv: GINConv, p: Pass, x: Tensor) -> Tensor:
    def compute() -> Tensor:
        return torch.add(p.view.propagate(x, "sum", loops=False), (1 + conv.eps) * x)

    return cast(Tensor, conv.nn(p.once_on_whole("sum", compute)))
