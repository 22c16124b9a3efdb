"""How the output of one layer is computed for all nodes, a chunk at a time: by known aggregations, or by the layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch_geometric.nn import ChebConv, GCNConv, GINConv, SAGEConv

from aggbuffer import hops as k_hop
from aggbuffer.fast.layers import fast_form, is_as_built, is_plain
from aggbuffer.hops import Recurrence
from aggbuffer.scale.operators import Degrees, Operator, gcn_operator, mean_operator, of_hops, sum_operator
from aggbuffer.scale.replay import Call

if TYPE_CHECKING:
    from aggbuffer.scale.sweep import Sweep

_DEEPEST = 4  # hops that a layer may look at in one call, if the library does not know it


class Form(Protocol):
    """A way to compute a layer."""

    @property
    def hops(self) -> int:
        """How far away the nodes are that the layer's output depends on."""
        ...

    def run(self, sweep: Sweep, layer: int, out: Tensor) -> None:
        """Fill ``out`` ``[N, width]`` at the nodes that are asked for."""
        ...


@dataclass(frozen=True, eq=False)
class OneAggregation:
    """GCN, SAGE with the mean, and GIN: ``after(A · before(H))``.

    Attributes:
        operator: A, from sums over the edges.
        before: What is aggregated, from H(l-1); ``None`` for itself.
        after: The output from the aggregated and H(l-1), both at the targets.
        width: Of what is aggregated.
        weight: The attribute of edges that the layer was called with.
    """

    operator: Callable[[Degrees], Operator]
    before: Callable[[Tensor], Tensor] | None
    after: Callable[[Tensor, Tensor], Tensor]
    width: int
    weight: str | None
    hops = 1

    def run(self, sweep: Sweep, layer: int, out: Tensor) -> None:
        block = sweep.blocks(layer)
        aggregates_term = bool(block) and block[0].block == "agg"
        mapped, is_own = self._mapped(sweep, layer, block[0] if aggregates_term else None)
        operator = self.operator(sweep.degrees(self.weight))
        for part, call in sweep.targets(layer):
            rows = operator.rows(sweep.source, part, mapped)
            term = sweep.term(layer, 0, call.hidden, part.nodes, self.weight) if block and not aggregates_term else None
            if term is not None and sweep.replay.specs[layer].kind == "mlp":
                rows, term = rows + term, None
            rows = self.after(rows, call.hidden[-1])
            out[part.nodes] = rows if term is None else rows + term
        if is_own:
            sweep.budget.free(mapped)

    def _mapped(self, sweep: Sweep, layer: int, aggregated: Any) -> tuple[Tensor, bool]:
        """What is aggregated, ``[N, width]``, and whether it is a table of its own."""
        if self.before is None and aggregated is None and layer == 0 and sweep.starts_with_features:
            assert sweep.source.matrix is not None
            return sweep.source.matrix, False
        constant = aggregated is None and layer == 0 and sweep.starts_with_features  # as the base is frozen
        if constant and sweep.kept is not None:
            return sweep.kept, False
        mapped = sweep.budget.table(sweep.source.num_nodes, self.width, sweep.source.dtype)
        for nodes, call in sweep.sources(layer):
            h = call.hidden[-1]
            rows = h if self.before is None else self.before(h)
            if aggregated is not None:  # the block that has its term aggregated as the layer does
                rows = rows + aggregated.forward(call.hidden, torch.ones(()), lambda term: term)
            mapped[nodes] = rows
        if constant and not mapped.untyped_storage().filename:
            sweep.kept = mapped
        return mapped, sweep.kept is not mapped


@dataclass(frozen=True, eq=False)
class KHops:
    """SGConv, TAGConv, ChebConv and APPNP as the recurrence of :mod:`aggbuffer.hops`, a hop at a time.

    Attributes:
        conv: The layer.
        weight: The attribute of edges that it was called with.
    """

    conv: nn.Module
    weight: str | None

    @property
    def hops(self) -> int:
        return k_hop.count(self.conv)

    def run(self, sweep: Sweep, layer: int, out: Tensor) -> None:
        outwards = isinstance(self.conv, ChebConv)
        operator = of_hops(self.conv, sweep.degrees(self.weight, outwards=outwards), self.weight)
        blocks, at_hops = sweep.blocks(layer), sweep.replay.specs[layer].kind == "hops"
        states = [sweep.budget.table(sweep.source.num_nodes, out.size(1), out.dtype)]
        for nodes, call in sweep.sources(layer):
            states[0][nodes] = self._unrolled(call).first
        for k in range(self.hops):
            last = k == self.hops - 1
            state = out if last else sweep.budget.table(sweep.source.num_nodes, out.size(1), out.dtype)
            for part, call in sweep.targets(layer, inner=not last):
                found = self._unrolled(call)
                rows = operator.rows(sweep.source, part, states[-1])
                if blocks and at_hops:
                    read = [*call.hidden, *(s[part.nodes] for s in (states if found.first_is_new else states[1:]))]
                    rows = rows + sweep.term(layer, k, read, part.nodes, self.weight)
                rows = rows * found.scale[k]
                if found.back[k] != 0:
                    rows = rows + found.back[k] * states[-2][part.nodes]
                if found.source[k] is not None:
                    rows = rows + cast(Tensor, found.source[k])
                bias = self._bias()
                if last and bias is not None:
                    rows = rows + bias
                if last and blocks and not at_hops:
                    rows = rows + sweep.term(layer, 0, call.hidden, part.nodes, self.weight)
                state[part.nodes] = rows
            states.append(state)
        for state in states[:-1]:
            sweep.budget.free(state)

    def _unrolled(self, call: Call) -> Recurrence:
        edges = torch.empty(2, 0, dtype=torch.int64)
        return k_hop.unroll(self.conv, call.hidden[-1], edges, None, {})

    def _bias(self) -> Tensor | None:
        if getattr(self.conv, "propagates_bias", False):
            return None
        holder: Any = self.conv.lin if hasattr(self.conv, "lin") else self.conv
        return cast(Tensor | None, getattr(holder, "bias", None))


@dataclass(frozen=True)
class ByTheLayer:
    """The layer itself, on targets with all their in-edges.

    Attributes:
        hops: How far those reach: 1, unless the layer looks at more than the in-edges of its targets.
        turned: Whether the layer sends messages from target to source.
    """

    hops: int
    turned: bool

    def run(self, sweep: Sweep, layer: int, out: Tensor) -> None:
        for nodes, data, rows in sweep.surroundings(layer, self.hops, self.turned):
            out[nodes] = sweep.replay.output(layer, data, rows)[: _count(nodes)]


def _count(nodes: Tensor | slice) -> int:
    return nodes.stop - nodes.start if isinstance(nodes, slice) else nodes.numel()


def candidates(conv: nn.Module, call: Call, data: Any, *, aggregates_term: bool, has_loops: bool) -> list[Form]:
    """Ways to compute a layer, the best first; which of them give its answers is for a trial to tell.

    Args:
        conv: The layer.
        call: What it was called with in an ordinary run.
        data: The graph of that run.
        aggregates_term: Whether its buffer's term is aggregated, too.
        has_loops: Whether the graph has self-loops.
    """
    turned = getattr(conv, "flow", "source_to_target") == "target_to_source"
    own: list[Form] = [ByTheLayer(hops, turned) for hops in range(1, _DEEPEST + 1)]
    known, weight = _edges_of(call, data)
    floating = call.hidden[-1].dtype in (torch.float32, torch.float64)
    if not known or turned or not floating or not is_as_built(conv) or call.hidden[-1].device.type != "cpu":
        return own
    if data.get("edge_index") is None and has_loops:  # which PyG treats in another way in a sparse adjacency
        return own
    if k_hop.covers(conv):
        return [KHops(conv, weight), *own]
    form = _one_aggregation(conv, weight, call.hidden[-1].size(1), aggregates_term)
    return own if form is None else [form, *own]


def _one_aggregation(conv: Any, weight: str | None, in_width: int, aggregates_term: bool) -> Form | None:
    if type(conv) is GCNConv and conv.aggr == "add" and conv.normalize:
        fill, adds_loops = (2.0 if conv.improved else 1.0), conv.add_self_loops

        def normalised(degrees: Degrees) -> Operator:
            return gcn_operator(degrees, weight, adds_loops=adds_loops, fill=fill)

        lin, bias = conv.lin, conv.bias
        first = aggregates_term or not is_plain(lin, bias=False) or conv.out_channels <= conv.in_channels

        def after_gcn(rows: Tensor, h: Tensor) -> Tensor:
            rows = rows if first else lin(rows)
            return rows if bias is None else rows + bias

        width = conv.out_channels if first else conv.in_channels
        return OneAggregation(normalised, lin if first else None, after_gcn, width, weight)
    if weight is not None or fast_form(conv) is None:
        return None
    if type(conv) is SAGEConv:
        sage = conv
        linear = sage.lin_l
        maps_first = linear.out_channels <= linear.in_channels

        def before_sage(h: Tensor) -> Tensor:
            return cast(Tensor, h @ linear.weight.t())

        def after_sage(rows: Tensor, h: Tensor) -> Tensor:
            rows = rows if maps_first else before_sage(rows)
            rows = rows if linear.bias is None else rows + linear.bias
            return rows + sage.lin_r(h) if sage.root_weight else rows

        width = linear.out_channels if maps_first else linear.in_channels
        return OneAggregation(mean_operator, before_sage if maps_first else None, after_sage, width, None)
    if type(conv) is GINConv:
        gin = conv

        def after_gin(rows: Tensor, h: Tensor) -> Tensor:
            return cast(Tensor, gin.nn(rows + (1 + gin.eps) * h))

        return OneAggregation(lambda degrees: sum_operator(None), None, after_gin, in_width, None)
    return None


def _edges_of(call: Call, data: Any) -> tuple[bool, str | None]:
    """Whether a layer was called with nothing but features, the graph's own edges and their weights; and the latter."""
    _, *others = [*call.args, *call.kwargs.values()] if call.args else _named(call.kwargs)
    adjacency = data.get("adj_t")
    edges, weight = (data.get("edge_index") if adjacency is None else adjacency), data.get("edge_weight")
    if not any(value is edges for value in others):
        return False, None
    left = [value for value in others if value is not edges and value is not None]
    if not left:
        return True, None if adjacency is None else "adj_t"
    is_weight = weight is not None and len(left) == 1 and left[0] is weight and adjacency is None
    return is_weight, "edge_weight" if is_weight else None


def _named(kwargs: dict[str, Any]) -> list[Any]:
    return [kwargs["x"], *(value for name, value in kwargs.items() if name != "x")]
