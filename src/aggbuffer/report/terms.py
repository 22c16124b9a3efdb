"""How large the buffer's term is beside the aggregation that it corrects, layer by layer and by degree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from aggbuffer.evaluate import Predictor
from aggbuffer.graph import Graph
from aggbuffer.model import BufferedGNN
from aggbuffer.perturb import nested_removal
from aggbuffer.report.bins import degree_bins

Norms = tuple[Tensor, Tensor]  # of the aggregation and of the term, each [N]

_SITES = {
    "output": "added to the layer's output",
    "mlp": "added before the layer's own MLP",
    "hops": "added at each hop; what is told is the sum that reaches the layer's output",
}


def layer_terms(model: BufferedGNN, data: Data, kept: float) -> dict[str, Any]:
    """Norms of every layer's aggregation and of its buffer's term over all nodes, in bins of degree.

    Args:
        model: A GNN with buffers.
        data: The graph.
        kept: Share of edges for a second measurement, on one draw; degrees are those of the full graph.
    """
    graph = Graph.of(data)
    predictor = Predictor(model, graph, None)
    full = _norms(model, predictor, data)
    less = None
    if kept < 1:
        [(_, draws)] = nested_removal(graph, [kept], 1, 0)
        less = _norms(model, predictor, next(draws))
    bins = degree_bins(graph.degree.cpu())
    return {
        "kept": kept,
        "bins": [{"label": label, "count": at.numel()} for label, at in bins],
        "layers": [
            {
                "name": spec.name,
                "site": _SITES[spec.kind],
                "full": [_told(full[i], at) for _, at in bins],
                "less": None if less is None else [_told(less[i], at) for _, at in bins],
            }
            for i, spec in enumerate(model.layers)
        ],
    }


def _told(norms: Norms, at: Tensor) -> dict[str, float]:
    """Mean norms over the nodes ``at``."""
    aggregation, term = (float(norm[at].mean()) for norm in norms)
    return {"aggregation": aggregation, "term": term}


def _norms(model: BufferedGNN, predictor: Predictor, data: Data) -> list[Norms]:
    """Both norms of every node at every layer, from one plain pass."""
    found: dict[int, Norms] = {}
    with model.plainly(), _watching(model, found):
        predictor.logits(data)
    return [found[i] for i in range(len(model.layers))]


@contextmanager
def _watching(model: BufferedGNN, found: dict[int, Norms]) -> Iterator[None]:
    """Compare what every buffer's hook receives with what it hands on; no hook of these is left afterwards."""
    modules, handles = dict(model.base.named_modules()), []

    def pair(index: int) -> tuple[Any, Any]:
        received: list[Tensor] = []

        def before(_: nn.Module, *values: Any) -> None:
            received.append(_first(values[-1]))

        def after(_: nn.Module, *values: Any) -> None:
            aggregation = received.pop()
            corrected = _first(values[-1])
            found[index] = (aggregation.norm(dim=-1).cpu(), (corrected - aggregation).norm(dim=-1).cpu())

        return before, after

    try:
        for index, spec in enumerate(model.layers):
            before, after = pair(index)
            if spec.kind == "mlp":
                site = cast(nn.Module, getattr(modules[spec.name], spec.mlp))
                handles.append(site.register_forward_pre_hook(before, prepend=True))
                handles.append(site.register_forward_pre_hook(after))
            else:
                handles.append(modules[spec.name].register_forward_hook(before, prepend=True))
                handles.append(modules[spec.name].register_forward_hook(after))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _first(value: Any) -> Tensor:
    """The representation itself, of what a layer received or returned, in at least single precision."""
    x: Tensor = value[0] if isinstance(value, tuple) else value
    return x.detach().to(torch.promote_types(x.dtype, torch.float32))
