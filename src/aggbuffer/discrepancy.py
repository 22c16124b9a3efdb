"""How far each layer's output moves when edges go: the constants of the paper's theorem beside what is measured.

    ||H1(l) - H2(l)||_2  <=  C1 ||H1(l-1) - H2(l-1)||_2 + C2

C1 passes on what the layers before did; C2 is there even for equal inputs, only because the edges differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from aggbuffer.evaluate import Predictor
from aggbuffer.graph import Graph
from aggbuffer.perturb import drop_edge, generator_on
from aggbuffer.spectral import Adjacencies, operator_norm, spectral_norm
from aggbuffer.theorem import Formula, formula_of

Basis = Literal["theorem", "measured"]
Observe = Callable[[str, nn.Module, tuple[Any, ...], dict[str, Any], Tensor], None]


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
    formula: Formula | None
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
    known = Adjacencies(graph.num_nodes)

    def remember(name: str, conv: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> None:
        formula = formula_of(conv, args, kwargs, known)
        slope = 0.0 if formula else _local_lipschitz(conv, args, kwargs)
        clean[name] = _Clean(_input(args, kwargs), out, formula, slope)

    with _watching(layers, remember):
        predictor.logits(graph.data)

    draws: dict[str, list[LayerDiscrepancy]] = {name: [] for name, _ in layers}
    generator = generator_on(torch.device("cpu"), seed)
    for _ in range(repeats):
        perturbed, changed = drop_edge(graph, share, generator), Adjacencies(graph.num_nodes)

        def compare(
            name: str,
            conv: nn.Module,
            args: tuple[Any, ...],
            kwargs: dict[str, Any],
            out: Tensor,
            changed: Adjacencies = changed,
        ) -> None:
            one, x = clean[name], _input(args, kwargs)
            after = formula_of(conv, args, kwargs, changed) if one.formula else None
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
