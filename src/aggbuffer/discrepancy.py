"""How far each layer's output moves when edges go: the constants of the paper's theorem beside what is measured.

    ||H1(l) - H2(l)||_2  <=  C1 ||H1(l-1) - H2(l-1)||_2 + C2

C1 passes on what the layers before did; C2 is there even for equal inputs, only because the edges differ.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.nn import MLP, BatchNorm, GATConv, GCNConv, GINConv, Linear, SAGEConv, SGConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from aggbuffer.evaluate import Predictor
from aggbuffer.graph import Graph, coo, is_sparse_adjacency
from aggbuffer.perturb import drop_edge, generator_on

Basis = Literal["theorem", "measured"]
Observe = Callable[[str, nn.Module, tuple[Any, ...], dict[str, Any], Tensor], None]
Product = Callable[[Tensor], Tensor]

_DENSE_LIMIT = 512  # matrices with a side up to this get the exact norm, others an iterative one
_NOT_EXPANSIVE = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Dropout, nn.Identity)


@dataclass(frozen=True)
class LayerDiscrepancy:
    """One message-passing layer, on the full graph (1) and on one with dropped edges (2).

    The constants are those of the convolution alone, so L_sigma = 1. ReLU, leaky ReLU, ELU, tanh and sigmoid keep
    them; GELU multiplies both by 1.13, a normalisation layer by a factor of its own. Where a model carries buffers,
    the constants describe the layer without them, and what is measured describes it with them.

    Attributes:
        name: Path of the layer in the model.
        layer: Its type.
        basis: ``"theorem"`` where the paper gives the formula (GCNConv, SAGEConv with mean, GATConv, GINConv with a
            plain MLP, SGConv), else ``"measured"``: C1 is then the local Lipschitz constant at this graph's
            representations, and C2 is ``structural``.
        c1: The paper's C1, which takes the norm of a normalised adjacency to be 1.
        c1_strict: C1 with that norm as it is. A row-normalised adjacency with hubs exceeds 1, and then only this one
            is a bound; for symmetric normalisation of an undirected graph the two agree.
        c2: The paper's C2 = C1 |V| ||A1_hat - A2_hat||_2 and its variants. It holds if ``input_norm`` is at most |V|.
        input: ||H1(l-1) - H2(l-1)||_2, how far the layer's input moves.
        output: ||H1(l) - H2(l)||_2, how far its output moves (before norm and activation).
        structural: How far its output moves for one and the same input, because of the edges alone.
        input_norm: The largest ||H2(l-1)||_2 that was seen.
    """

    name: str
    layer: str
    basis: Basis
    c1: float
    c1_strict: float
    c2: float
    input: float
    output: float
    structural: float
    input_norm: float

    @property
    def bound(self) -> float:
        """What the theorem allows ``output`` to be; for the basis ``"measured"`` a first-order estimate of it."""
        return self.c1_strict * self.input + self.c2


@dataclass(frozen=True)
class _Clean:
    """A layer's call on the full graph: its input and output, and the theorem's formula or else a measured slope."""

    x: Tensor
    out: Tensor
    formula: _Formula | None
    slope: float


def layer_discrepancies(
    predictor: Predictor, layers: list[tuple[str, nn.Module]], graph: Graph, *, share: float, repeats: int, seed: int
) -> list[LayerDiscrepancy]:
    """Measure every layer under DropEdge, averaged over ``repeats`` draws.

    Takes one pass on the full graph and two for each draw: one as it comes, and one in which every layer gets the
    input that it had on the full graph, which leaves the edges alone to make a difference. Two representations a layer
    are kept in memory.

    Args:
        predictor: The model.
        layers: Names and modules of its message-passing layers.
        graph: The full graph.
        share: Share of edges that each draw loses.
        repeats: Number of draws.
        seed: Of the draws.
    """
    clean: dict[str, _Clean] = {}
    known = _Adjacencies(graph.num_nodes)

    def remember(name: str, conv: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> None:
        formula = _formula(conv, args, kwargs, known)
        slope = 0.0 if formula else _local_lipschitz(conv, args, kwargs)
        clean[name] = _Clean(_input(args, kwargs), out, formula, slope)

    with _watching(layers, remember):
        predictor.logits(graph.data)

    draws: dict[str, list[LayerDiscrepancy]] = {name: [] for name, _ in layers}
    generator = generator_on(torch.device("cpu"), seed)
    for _ in range(repeats):
        perturbed, changed = drop_edge(graph, share, generator), _Adjacencies(graph.num_nodes)

        def compare(
            name: str,
            conv: nn.Module,
            args: tuple[Any, ...],
            kwargs: dict[str, Any],
            out: Tensor,
            changed: _Adjacencies = changed,
        ) -> None:
            one, x = clean[name], _input(args, kwargs)
            after = _formula(conv, args, kwargs, changed) if one.formula else None
            found = LayerDiscrepancy(
                name=name,
                layer=type(conv).__name__,
                basis="theorem" if one.formula else "measured",
                c1=one.formula.c1(known, strict=False) if one.formula else one.slope,
                c1_strict=one.formula.c1(known, strict=True) if one.formula else one.slope,
                c2=one.formula.c2(after, changed) if one.formula and after else math.nan,
                input=spectral_norm(x - one.x),
                output=spectral_norm(out - one.out),
                structural=math.nan,  # takes the other pass
                input_norm=spectral_norm(x),
            )
            draws[name].append(found)

        def isolate(name: str, conv: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> None:
            moved, last = spectral_norm(out - clean[name].out), draws[name][-1]
            c2 = last.c2 if last.basis == "theorem" else moved
            draws[name][-1] = replace(last, structural=moved, c2=c2)

        with _watching(layers, compare):
            predictor.logits(perturbed)
        with _watching(layers, isolate, {name: one.x for name, one in clean.items()}):
            predictor.logits(perturbed)
    return [_average(draws[name]) for name, _ in layers]


def _average(draws: list[LayerDiscrepancy]) -> LayerDiscrepancy:
    def mean(field: str) -> float:
        return float(sum(getattr(draw, field) for draw in draws)) / len(draws)

    return replace(
        draws[0],
        c2=mean("c2"),
        input=mean("input"),
        output=mean("output"),
        structural=mean("structural"),
        input_norm=max(draw.input_norm for draw in draws),
    )


@contextmanager
def _watching(
    layers: list[tuple[str, nn.Module]], observe: Observe, pinned: dict[str, Tensor] | None = None
) -> Iterator[None]:
    """Show every layer's call to ``observe``; with ``pinned``, the layers get those inputs instead of their own.

    A buffer's hooks are older than these: the pinned input comes before they read it (``prepend``), and the output is
    seen after they have added to it.
    """
    handles: list[Any] = []

    def pinning(x: Tensor) -> Callable[..., Any]:
        def hook(conv: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return _with_input(args, kwargs, x)

        return hook

    def seeing(name: str) -> Callable[..., None]:
        def hook(conv: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            observe(name, conv, args, kwargs, _first(output))

        return hook

    try:
        for name, conv in layers:
            if pinned is not None:
                handles.append(conv.register_forward_pre_hook(pinning(pinned[name]), with_kwargs=True, prepend=True))
            handles.append(conv.register_forward_hook(seeing(name), with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    x: Tensor = args[0] if args else kwargs["x"]
    return x


def _with_input(args: tuple[Any, ...], kwargs: dict[str, Any], x: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return ((x, *args[1:]), kwargs) if args else (args, {**kwargs, "x": x})


def _first(output: Any) -> Tensor:
    out: Tensor = output[0] if isinstance(output, tuple) else output
    return out


@dataclass(frozen=True, eq=False)
class _Adjacency:
    """A matrix A_hat ``[N, N]`` (rows are targets), or its K-th power, as the products that its norm needs."""

    source: Tensor
    target: Tensor
    value: Tensor
    num_nodes: int
    hops: int = 1

    def times(self, v: Tensor) -> Tensor:
        return self._walk(v, self.source, self.target)

    def transposed_times(self, v: Tensor) -> Tensor:
        return self._walk(v, self.target, self.source)

    def _walk(self, v: Tensor, source: Tensor, target: Tensor) -> Tensor:
        for _ in range(self.hops):
            v = torch.zeros_like(v).index_add_(0, target, self.value * v[source])
        return v

    def minus(self, other: _Adjacency) -> tuple[Product, Product]:
        return (
            lambda v: self.times(v) - other.times(v),
            lambda v: self.transposed_times(v) - other.transposed_times(v),
        )


class _Adjacencies:
    """The adjacencies of one pass and their norms. Layers that share their edges share the work."""

    def __init__(self, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        self._made: dict[object, tuple[object, _Adjacency]] = {}
        self._norms: dict[tuple[_Adjacency, _Adjacency | None], float] = {}

    def make(
        self, conv: Any, edges: Tensor, weight: Tensor | None, build: Callable[[], tuple[Tensor, Tensor, Tensor]]
    ) -> _Adjacency:
        settings = [getattr(conv, name, None) for name in ("improved", "add_self_loops", "normalize", "flow", "K")]
        key = (type(conv), *settings, id(edges), id(weight))
        if key not in self._made:
            source, target, value = build()
            if conv.flow == "target_to_source":
                source, target = target, source
            value = value.to(torch.promote_types(value.dtype, torch.float32))
            made = _Adjacency(source, target, value, self.num_nodes, getattr(conv, "K", 1))
            self._made[key] = ((edges, weight), made)  # the tensors too: an id is only good while they live
        return self._made[key][1]

    def norm(self, one: _Adjacency, other: _Adjacency | None = None) -> float:
        """||A1_hat||_2, or ||A1_hat - A2_hat||_2."""
        if (one, other) not in self._norms:
            products = (one.times, one.transposed_times) if other is None else one.minus(other)
            self._norms[one, other] = operator_norm(*products, one.value.new_empty(self.num_nodes))
        return self._norms[one, other]


@dataclass(frozen=True)
class _Formula:
    """A layer as the theorem and its appendix see it: sum or stack of A_hat H W over heads, plus a map beside it.

    Attributes:
        heads: A_hat of each head, one for all layers but GAT.
        through: ||W||_2 of each head (for GIN, the Lipschitz constant of its MLP), over the number of averaged heads.
        beside: Lipschitz constant of what reaches the output without aggregation.
        normalised: Whether the paper takes ||A_hat||_2 to be 1.
        stacked: Whether heads lie side by side, so that their norms add as squares.
    """

    heads: list[_Adjacency]
    through: list[float]
    beside: float = 0.0
    normalised: bool = True
    stacked: bool = False

    def c1(self, known: _Adjacencies, *, strict: bool) -> float:
        norms = [1.0] * len(self.heads)
        if strict or not self.normalised:
            norms = [known.norm(head) for head in self.heads]
        return self._combine(norms) + self.beside

    def c2(self, after: _Formula, known: _Adjacencies) -> float:
        changes = [known.norm(one, two) for one, two in zip(self.heads, after.heads, strict=True)]
        return self._combine(changes) * known.num_nodes

    def _combine(self, norms: list[float]) -> float:
        parts = [weight * norm for weight, norm in zip(self.through, norms, strict=True)]
        return math.hypot(*parts) if self.stacked else sum(parts)


def _formula(conv: Any, args: tuple[Any, ...], kwargs: dict[str, Any], known: _Adjacencies) -> _Formula | None:
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
        return _Formula([adjacency], [spectral_norm(conv.lin.weight)], normalised=normalises)
    if type(conv) is SAGEConv and conv.aggr == "mean" and not (conv.project or conv.normalize):

        def averaged() -> tuple[Tensor, Tensor, Tensor]:
            source, target, value = _valued(edges, None)
            receiver = source if conv.flow == "target_to_source" else target
            return source, target, value / torch.bincount(receiver, minlength=known.num_nodes)[receiver]

        beside = spectral_norm(conv.lin_r.weight) if conv.root_weight else 0.0
        return _Formula([known.make(conv, edges, None, averaged)], [spectral_norm(conv.lin_l.weight)], beside)
    if type(conv) is GINConv and conv.aggr == "add" and (inner := _chain_constant(conv.nn)) is not None:
        adjacency = known.make(conv, edges, None, lambda: _valued(edges, None))
        return _Formula([adjacency], [inner], inner * abs(1 + float(conv.eps)), normalised=False)
    return None


def _valued(edges: Any, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    source, target, value = coo(edges)
    value = weight if value is None else value
    return source, target, torch.ones(source.numel(), device=source.device) if value is None else value.view(-1)


def _attention(conv: Any, call: dict[str, Any], num_nodes: int) -> _Formula | None:
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
    return _Formula(
        [_Adjacency(source, target, head.float(), num_nodes) for head in alpha.unbind(-1)],
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


def _local_lipschitz(conv: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """The norm of the layer's Jacobian at its input.

    J'u is backpropagated. Jv is a central difference, because forward mode and double backward fail on CSR input; its
    step is the one that balances rounding and curvature.
    """
    x = _input(args, kwargs).detach()
    step = math.cbrt(torch.finfo(x.dtype).eps) * max(float(x.norm()), 1e-12)

    def f(z: Tensor) -> Tensor:
        moved_args, moved_kwargs = _with_input(args, kwargs, z)
        return _first(conv.forward(*moved_args, **moved_kwargs))

    def pushed(v: Tensor) -> Tensor:
        return (f(x + step * v) - f(x - step * v)) / (2 * step)

    with torch.enable_grad():
        point = x.clone().requires_grad_()
        out = f(point)

    def pulled(u: Tensor) -> Tensor:
        return torch.autograd.grad(out, point, u, retain_graph=True)[0]

    return operator_norm(pushed, pulled, x, tolerance=1e-3, most=40)


def spectral_norm(matrix: Tensor) -> float:
    """||M||_2 of a dense ``[n, m]``: exact where one side is small, else iterated."""
    matrix = matrix.detach().to(torch.promote_types(matrix.dtype, torch.float32))
    matrix = matrix if matrix.size(0) >= matrix.size(1) else matrix.t()
    size = float(matrix.abs().max()) if matrix.numel() else 0.0
    if size == 0 or not math.isfinite(size):
        return size
    matrix = matrix / size  # squares of float32 overflow early
    if matrix.size(1) > _DENSE_LIMIT:
        return size * operator_norm(lambda v: matrix @ v, lambda u: matrix.t() @ u, matrix[0])
    return size * math.sqrt(max(float(torch.linalg.eigvalsh((matrix.t() @ matrix).double())[-1]), 0.0))


def operator_norm(
    times: Product, transposed_times: Product, like: Tensor, *, tolerance: float = 1e-6, most: int = 200
) -> float:
    """||M||_2 of a matrix that is only known by its products with vectors.

    Lanczos on M'M: the power iteration that also keeps what its earlier vectors found, and so needs far fewer steps.
    It stops when a step moves the estimate by less than ``tolerance``; the estimate never exceeds the norm.

    Args:
        times: v -> M v.
        transposed_times: u -> M' u.
        like: A tensor of the shape, dtype and device of v.
        tolerance: Relative.
        most: The most steps.
    """
    start = torch.randn(like.shape, generator=torch.Generator().manual_seed(0)).to(like)
    v, before, beta = start / start.norm(), torch.zeros_like(start), 0.0
    diagonal: list[float] = []
    beside: list[float] = []
    estimate = 0.0
    for _ in range(most):
        w = transposed_times(times(v))
        diagonal.append(float((v * w).sum()))
        if not math.isfinite(diagonal[-1]):
            return math.nan
        w = w - diagonal[-1] * v - beta * before
        found = _largest_eigenvalue(diagonal, beside)
        before, beta = v, float(w.norm())
        if len(diagonal) > 4 and found - estimate <= tolerance * found:
            return math.sqrt(max(found, 0.0))
        if beta <= 1e-6 * found or found <= 0:  # the whole range of M has been seen
            break
        estimate = found
        beside.append(beta)
        v = w / beta
    return math.sqrt(max(found, 0.0))


def _largest_eigenvalue(diagonal: list[float], beside: list[float]) -> float:
    tri = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    if beside:
        tri = tri + torch.diag(off := torch.tensor(beside, dtype=torch.float64), 1) + torch.diag(off, -1)
    return float(torch.linalg.eigvalsh(tri)[-1])
