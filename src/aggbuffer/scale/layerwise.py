"""Logits for every node of a graph in bounded memory: each layer for all nodes before the next.

For layer l, the model's own forward runs on chunks of nodes up to that layer, with what the layers before it have said
already in their place (:mod:`aggbuffer.scale.replay`). The layer itself is computed for chunks of targets with all
their in-edges (:mod:`aggbuffer.scale.forms`). At the end, the rest of the forward gives the logits. A trial on a small
part of the graph shows beforehand that this gives the model's answers.
"""

from __future__ import annotations

import copy
from typing import Any, cast

import torch
from torch import Tensor, nn

from aggbuffer.config import check_integer
from aggbuffer.errors import AggBufferError, GraphError, ModelTypeError
from aggbuffer.forward import Forward, checked_forward
from aggbuffer.graph import Graph
from aggbuffer.layers import evaluation_mode, explain_failure, refuse_cached
from aggbuffer.model import BufferedGNN
from aggbuffer.scale.draws import Draw
from aggbuffer.scale.replay import Replay
from aggbuffer.scale.source import NodeSource, as_source, check_on_cpu
from aggbuffer.scale.sweep import NO_ENDS, Sweep, reach_of
from aggbuffer.scale.tables import Budget
from aggbuffer.scale.trial import tried
from aggbuffer.targets import select

MEMORY = 2**30  # bytes, where the user sets none


def infer(
    model: nn.Module,
    data: object,
    *,
    memory: int | None = None,
    nodes: str | Tensor | None = None,
    forward: Forward | None = None,
) -> Tensor:
    """A model's logits, with buffers or without, computed layer by layer in bounded memory.

    They are those of ``model(x, edge_index)`` in evaluation mode but for rounding, whatever the size of the graph.

    Args:
        model: A ``BufferedGNN`` or any GNN whose parts between its message-passing layers treat each node by itself.
        data: A ``Data``, a pair ``(x, edge_index)``, or a graph on disk.
        memory: Bytes to take beyond the graph, a gibibyte if None; what layers say of all nodes goes to a file where
            it does not fit. The in-edges of a single node have to.
        nodes: A name in ``data``, a bool mask or node numbers; all nodes if None.
        forward: How to call a base GNN; a ``BufferedGNN`` knows already.

    Returns:
        ``[N, C]``, or a row for each of ``nodes`` in their order.

    Example:
        >>> logits = aggbuffer.infer(model, data, memory=2 * 2**30)
    """
    source = as_source(data)
    chosen = None
    if nodes is not None:
        chosen = select(source, nodes, source.num_nodes)
        if chosen is None:
            raise GraphError(f"The graph has no {nodes!r}; pass nodes=<bool mask or node numbers>.")
    return Layerwise(model, source, memory=memory, nodes=chosen, forward=forward).logits()


class Layerwise:
    """A model on a graph, tried once and run as often as its buffers change; its base must stay as it is.

    Args:
        model: A model with buffers or without.
        source: The graph.
        memory: Bytes to take beyond it; None for a gibibyte.
        nodes: ``[M]`` whose logits are wanted; None for all.
        forward: How to call a base.
    """

    def __init__(
        self,
        model: nn.Module,
        source: NodeSource,
        *,
        memory: int | None = None,
        nodes: Tensor | None = None,
        forward: Forward | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ModelTypeError(f"The model is a {type(model).__name__}; expected a torch.nn.Module.")
        if memory is not None:
            check_integer("memory", memory, 1)
        self.model = cast(nn.Module, getattr(model, "_orig_mod", model))  # a compiled model keeps the original here
        self.source, self.memory, self.nodes = source, MEMORY if memory is None else int(memory), nodes
        is_buffered = isinstance(self.model, BufferedGNN)
        self.forward = cast(BufferedGNN, self.model).forward_call if is_buffered else checked_forward(forward)
        check_on_cpu(self.model, source)
        _check_width(self.model, source)
        refuse_cached(self.model)
        self.plan = tried(self.model, self.source, self.forward)
        self._reach = reach_of(source, self.plan.forms, nodes, self.memory)
        self._kept: Tensor | None = None

    def at(self, nodes: Tensor | None) -> Layerwise:
        """The same for other nodes, without another trial."""
        other = copy.copy(self)
        other.nodes = nodes
        other._reach, other._kept = reach_of(self.source, self.plan.forms, nodes, self.memory), None
        return other

    def logits(self, draw: Draw | None = None) -> Tensor:
        """``[M, C]`` on the graph, or on what a draw leaves of it."""
        replay = Replay(self.model, self.plan.specs, self.forward)
        budget = Budget(self.memory, self._kept)
        sweep = Sweep(self.source, replay, budget, draw, self._reach, self.plan.starts_with_features)
        sweep.kept = self._kept
        with evaluation_mode(self.model), torch.no_grad(), replay.installed():
            try:
                for layer, form in enumerate(self.plan.forms):
                    out = sweep.budget.table(self.source.num_nodes, self.plan.widths[layer], self.plan.dtypes[layer])
                    form.run(sweep, layer, out)
                    replay.tables.append(out)
                self._kept = sweep.kept
                found = [replay.logits(data, rows) for rows, data in sweep.rows(self.nodes)]
                return torch.cat([torch.empty(0, self.plan.outputs, dtype=self.source.dtype), *found])
            except AggBufferError:
                raise
            except Exception as error:
                raise explain_failure(error, Graph(sweep.data_of(slice(0, 1)), *NO_ENDS), self.model) from error


def _check_width(model: nn.Module, source: NodeSource) -> None:
    expected: Any = getattr(model, "num_features", None) if isinstance(model, BufferedGNN) else None
    if expected is not None and expected != source.num_features:
        raise GraphError(
            f"The graph has {source.num_features} features per node, but the model was attached to one with "
            f"{expected}; pass a graph with the same features."
        )
