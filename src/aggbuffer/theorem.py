"""The paper's C1 and C2 of one layer: each kind of convolution as the theorem and its appendix see it."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MLP, BatchNorm, GATConv, GCNConv, GINConv, Linear, SAGEConv, SGConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from aggbuffer.graph import coo, is_sparse_adjacency
from aggbuffer.spectral import Adjacencies, Adjacency, spectral_norm

_NOT_EXPANSIVE = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Dropout, nn.Identity)


@dataclass(frozen=True)
class Formula:
    """A layer as the theorem and its appendix see it: sum or stack of A_hat H W over heads, plus a map beside it.

    Attributes:
        heads: A_hat of each head, one for all layers but GAT.
        through: ||W||_2 of each head (for GIN, the Lipschitz constant of its MLP), over the number of averaged heads.
        beside: Lipschitz constant of what reaches the output without aggregation.
        normalised: Whether the paper takes ||A_hat||_2 to be 1.
        stacked: Whether heads lie side by side, so that their norms add as squares.
    """

    heads: list[Adjacency]
    through: list[float]
    beside: float = 0.0
    normalised: bool = True
    stacked: bool = False

    def c1(self, known: Adjacencies, *, strict: bool) -> float:
        """The factor for what the layers before did; ``strict`` takes norms as they are, not the paper's 1."""
        norms = [1.0] * len(self.heads)
        if strict or not self.normalised:
            norms = [known.norm(head) for head in self.heads]
        return self._combine(norms) + self.beside

    def c2(self, after: Formula, known: Adjacencies) -> float:
        """The term that is there for equal inputs; ``after`` is the formula on the graph with dropped edges."""
        changes = [known.norm(one, two) for one, two in zip(self.heads, after.heads, strict=True)]
        return self._combine(changes) * known.num_nodes

    def _combine(self, norms: list[float]) -> float:
        parts = [weight * norm for weight, norm in zip(self.through, norms, strict=True)]
        return math.hypot(*parts) if self.stacked else sum(parts)


def formula_of(conv: Any, args: tuple[Any, ...], kwargs: dict[str, Any], known: Adjacencies) -> Formula | None:
    """The layer's formula for one of its calls; None where the paper has none. Subclasses may do as they like."""
    call = inspect.signature(conv.forward).bind(*args, **kwargs).arguments
    if type(conv) is GATConv:
        return _attention(conv, call, known.num_nodes)
    edges: Any = call.get("edge_index")
    weight: Tensor | None = call.get("edge_weight")
    if type(conv) in (GCNConv, SGConv):
        normalises = getattr(conv, "normalize", True)

        def normalised() -> tuple[Tensor, Tensor, Tensor]:
            if not normalises:
                return _valued(edges, weight)
            options = (getattr(conv, "improved", False), conv.add_self_loops, conv.flow, call["x"].dtype)
            normed = gcn_norm(edges, weight, known.num_nodes, *options)
            return _valued(*normed) if isinstance(normed, tuple) else _valued(normed, None)

        adjacency = known.make(conv, edges, weight, normalised)
        return Formula([adjacency], [spectral_norm(conv.lin.weight)], normalised=normalises)
    if type(conv) is SAGEConv and conv.aggr == "mean" and not (conv.project or conv.normalize):

        def averaged() -> tuple[Tensor, Tensor, Tensor]:
            source, target, value = _valued(edges, None)
            receiver = source if conv.flow == "target_to_source" else target
            return source, target, value / torch.bincount(receiver, minlength=known.num_nodes)[receiver]

        beside = spectral_norm(conv.lin_r.weight) if conv.root_weight else 0.0
        return Formula([known.make(conv, edges, None, averaged)], [spectral_norm(conv.lin_l.weight)], beside)
    if type(conv) is GINConv and conv.aggr == "add" and (inner := _chain_constant(conv.nn)) is not None:
        adjacency = known.make(conv, edges, None, lambda: _valued(edges, None))
        return Formula([adjacency], [inner], inner * abs(1 + float(conv.eps)), normalised=False)
    return None


def _valued(edges: Any, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    source, target, value = coo(edges)
    value = weight if value is None else value
    return source, target, torch.ones(source.numel(), device=source.device) if value is None else value.view(-1)


def _attention(conv: Any, call: dict[str, Any], num_nodes: int) -> Formula | None:
    """GAT: A_hat is the attention that this very input gets, a row-stochastic matrix a head."""
    edges = call["edge_index"]
    if is_sparse_adjacency(edges):
        if conv.edge_dim is not None:
            return None
        edges = torch.stack(coo(edges)[:2])
    # forward, not a call: this runs inside a hook of the layer.
    _, (ends, alpha) = conv.forward(call["x"], edges, call.get("edge_attr"), return_attention_weights=True)
    source, target = ends.flip(0) if conv.flow == "target_to_source" else ends
    lin = conv.lin_src if getattr(conv, "lin", None) is None else conv.lin
    residual = getattr(conv, "res", None)
    share = 1.0 if conv.concat else 1.0 / conv.heads
    return Formula(
        [Adjacency(source, target, head.float(), num_nodes) for head in alpha.unbind(-1)],
        [share * spectral_norm(head) for head in lin.weight.view(conv.heads, conv.out_channels, -1)],
        0.0 if residual is None else spectral_norm(residual.weight),
        stacked=conv.concat,
    )


def _chain_constant(module: nn.Module) -> float | None:
    """A Lipschitz constant of an MLP: the product over its parts; None if it has a part that is not known."""
    if isinstance(module, nn.Sequential | MLP):
        parts = list(module) if isinstance(module, nn.Sequential) else [*module.lins, *module.norms, module.act]
        known = [_chain_constant(part) for part in parts if isinstance(part, nn.Module)]
        return None if None in known else math.prod(factor for factor in known if factor is not None)
    if isinstance(module, nn.BatchNorm1d) and module.running_var is not None:
        scale = (module.running_var + module.eps).rsqrt()
        return float((scale if module.weight is None else scale * module.weight).abs().max())
    if isinstance(module, BatchNorm):
        return _chain_constant(module.module)
    if isinstance(module, nn.Linear | Linear):
        return spectral_norm(module.weight)
    slope = max(getattr(module, "negative_slope", 0.0), getattr(module, "alpha", 0.0))
    return 1.0 if isinstance(module, _NOT_EXPANSIVE) and slope <= 1 else None
