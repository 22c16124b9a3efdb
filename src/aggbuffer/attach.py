"""Attach buffers to a trained model, switch them off for a while, and detach them without a trace."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from aggbuffer.config import BufferConfig
from aggbuffer.errors import ConfigError, GraphError, ModelError, ModelTypeError
from aggbuffer.forward import Forward, checked_forward, checked_logits
from aggbuffer.graph import Graph, coo, is_sparse_adjacency
from aggbuffer.hooks import LayerHooks
from aggbuffer.layers import LayerSpec, discover, forked_randomness
from aggbuffer.model import BufferedGNN
from aggbuffer.scale.source import NodeSource, is_source

# Which layers run does not depend on the edges, and the messages of all edges of a large graph may not fit into memory.
_ENOUGH_EDGES = 2**17

# Modules for which torch picks another kernel once their weights need no gradient.
_CHOOSE_BY_GRADIENT = (nn.RNNBase, nn.MultiheadAttention)


def attach(
    gnn: nn.Module, data: object, config: BufferConfig | None = None, *, forward: Forward | None = None
) -> BufferedGNN:
    """Add an aggregation buffer to every message-passing layer of a trained GNN.

    The buffers start at zero, so the result answers exactly as ``gnn`` does. The base model is neither copied nor
    renamed; it is frozen and kept in evaluation mode until :func:`detach` gives it back as it was.

    Args:
        gnn: Any trained PyG model for one homogeneous graph.
        data: The graph, a ``Data`` or a pair ``(x, edge_index)``; one evaluation pass on it finds the layers. Of a
            graph on disk, a small part is looked at.
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
    if not isinstance(config, BufferConfig):
        raise ConfigError(f"config is a {type(config).__name__}; expected a BufferConfig.")
    check_carries_none(gnn)
    graph = Graph.of(_part_of(data) if is_source(data) else data)
    call = checked_forward(forward)
    if config.weighted_degree:
        _check_weights(graph)
    probe, specs, logits = _discovered(gnn, graph, call, config)
    model = BufferedGNN(gnn, specs, config, call, graph.x.size(1))
    try:
        _freeze(model, probe, logits)
    except BaseException:
        model._release()
        raise
    return model


def _part_of(source: NodeSource) -> Data:
    from aggbuffer.scale.trial import probe  # which needs models with buffers

    return probe(source).graph.data


def _discovered(
    gnn: nn.Module, graph: Graph, call: Forward, config: BufferConfig
) -> tuple[Graph, list[LayerSpec], Tensor]:
    """The graph of a run that found the layers, the layers, and its logits."""

    def on(probe: Graph) -> tuple[Graph, list[LayerSpec], Tensor]:
        return probe, *discover(gnn, probe, lambda: checked_logits(call(gnn, probe.data), probe.num_nodes), config)

    part = graph.first_edges(_ENOUGH_EDGES)
    if part is not graph:
        with suppress(ModelError):  # a model may hold something for every edge
            return on(part)
    return on(graph)


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
    model = BufferedGNN(gnn, specs, config, checked_forward(forward), num_features)
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
    if not any(isinstance(module, _CHOOSE_BY_GRADIENT) for module in model.base.modules()):
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


def check_carries_none(gnn: object) -> None:
    """Refuse a model that carries buffers already."""
    if isinstance(gnn, BufferedGNN):
        raise ModelTypeError("The model already carries buffers; detach it first.")
    if isinstance(gnn, nn.Module) and any(_owner_of(module) is not None for module in gnn.modules()):
        raise ModelError("The model, or a part of it, already carries buffers; detach those first.")


def _owner_of(module: nn.Module) -> BufferedGNN | None:
    for hook in module._forward_pre_hooks.values():
        holder = getattr(hook, "__self__", None)
        if isinstance(holder, LayerHooks):
            return holder.owner
    return None


def _check_weights(graph: Graph) -> None:
    edges = graph.data.get("edge_index", graph.data.get("adj_t"))
    weight = coo(edges)[2] if is_sparse_adjacency(edges) else graph.data.get("edge_weight")
    if weight is not None and bool((weight < 0).any()):
        raise GraphError("weighted_degree=True needs edge weights of at least 0; found negative ones.")
