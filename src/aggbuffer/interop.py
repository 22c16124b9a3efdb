"""Read the checkpoints of the authors' implementation (DGL) into plain PyG models with buffers.

Every architecture there adds one self-loop to each node, normalises over the result, and puts ReLU between layers.
The degree that a buffer divides by counts that self-loop too, so it is the paper's D + I.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, SGConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_remaining_self_loops, scatter

from aggbuffer.attach import attach
from aggbuffer.config import BufferConfig
from aggbuffer.errors import BufferFileError, ConfigError
from aggbuffer.model import BufferedGNN

Architecture = Literal["gcn", "sage", "gat", "gin", "sgc"]
Aggregation = Literal["sym", "rw"]


class BiasFirstSGConv(SGConv):  # type: ignore[misc]
    """SGC that propagates ``X W + b``: the authors' order, in which the bias is spread over the graph too."""

    propagates_bias = True

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges, weight = gcn_norm(edge_index, None, x.size(0), False, self.add_self_loops, self.flow, dtype=x.dtype)
        x = self.lin(x)
        for _ in range(self.K):
            x = self.propagate(edges, x=x, edge_weight=weight)
        return x


class ReferenceGNN(nn.Module):
    """One of the authors' base models; called as ``model(x, edge_index)`` with no self-loops in ``edge_index``.

    Args:
        convs: One per layer. They get the edges with one self-loop per node and add none themselves.
        residuals: A linear map around each layer, or none at all.
        norms: One for each layer but the last, or none at all.
        aggregation: How a GCN weighs its edges; None leaves that to the layers.
    """

    def __init__(
        self,
        convs: list[nn.Module],
        residuals: list[nn.Module],
        norms: list[nn.Module],
        aggregation: Aggregation | None,
    ) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)
        self.residuals = nn.ModuleList(residuals)
        self.norms = nn.ModuleList(norms)
        self.aggregation = aggregation

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges = add_remaining_self_loops(edge_index, num_nodes=x.size(0))[0]
        weights = (self._weights(edges, x),) if self.aggregation else ()
        last = len(self.convs) - 1
        for i, conv in enumerate(self.convs):
            out = conv(x, edges, *weights)
            if self.residuals:
                out = out + self.residuals[i](x)
            if i < last:
                out = self.norms[i](out) if self.norms else out
                out = out.relu()
            x = out
        return x

    def _weights(self, edges: Tensor, x: Tensor) -> Tensor:
        """``[E]``; for ``sym``, DGL takes the out-degree of the source, where PyG's GCN takes its in-degree."""
        source, target = edges
        ones = torch.ones(source.numel(), dtype=x.dtype, device=x.device)
        received: Tensor = scatter(ones, target, dim_size=x.size(0))
        if self.aggregation == "rw":
            return received[target].reciprocal()
        sent: Tensor = scatter(ones, source, dim_size=x.size(0))
        return (sent[source] * received[target]).rsqrt()


def load_reference(
    state: Mapping[str, Tensor], *, architecture: Architecture, aggregation: Aggregation = "sym"
) -> nn.Module:
    """Build a model from a checkpoint of the authors' code; its logits in evaluation mode are theirs.

    Args:
        state: Name → tensor, as the authors' code saves it. Widths, depth, residual connections and LayerNorm are
            read off it.
        architecture: ``"gcn"``, ``"sage"``, ``"gat"``, ``"gin"`` or ``"sgc"``.
        aggregation: For a GCN, ``"sym"`` or ``"rw"``.

    Returns:
        A :class:`~aggbuffer.BufferedGNN` where the checkpoint has buffers, else the base GNN.

    Raises:
        ConfigError: For an unknown architecture or aggregation.
        BufferFileError: If names or shapes are not those of that architecture.
    """
    if architecture not in get_args(Architecture):
        raise ConfigError(
            f"architecture must be one of {', '.join(map(repr, get_args(Architecture)))} (got {architecture!r})."
        )
    if aggregation not in get_args(Aggregation):
        raise ConfigError(f"aggregation must be 'sym' or 'rw' (got {aggregation!r}).")
    if aggregation == "rw" and architecture != "gcn":
        raise ConfigError(f"aggregation='rw' is for a GCN (got architecture={architecture!r}).")
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise BufferFileError("The checkpoint is not a mapping of name to tensor; pass a state dict.")
    reader = _Reader(state, architecture)
    with torch.random.fork_rng(devices=[]):  # layers draw random weights before they get their own
        base = _base(reader, architecture, aggregation)
    buffers = [
        (reader.take(f"layer_buffers.{i}.weight", 2), reader.take(f"layer_buffers.{i}.bias", 1))
        for i in range(reader.count("layer_buffers"))
    ]
    reader.finish()
    graph = _tiny_graph(base)
    try:
        with torch.no_grad():
            base(*graph)
    except RuntimeError as error:
        raise BufferFileError(f"The widths of the checkpoint's layers do not fit together ({error}).") from error
    return _buffered(base, graph, buffers, architecture) if buffers else base


class _Reader:
    """Hands out the tensors of a checkpoint, each once, and sees that none is missing or left over."""

    def __init__(self, state: Mapping[str, Tensor], architecture: str) -> None:
        self.left = dict(state)
        self.architecture = architecture
        self.sizes = {name: self._count(name) for name in {key.split(".")[0] for key in state}}

    def _count(self, group: str) -> int:
        numbers = [key.split(".")[1] for key in self.left if key.startswith(f"{group}.")]
        return max((int(number) + 1 for number in numbers if number.isdecimal()), default=0)

    def count(self, group: str) -> int:
        """How many ``group.0``, ``group.1``, … there are."""
        return self.sizes.get(group, 0)

    def take(self, name: str, dimensions: int) -> Tensor:
        if name not in self.left:
            raise BufferFileError(f"The checkpoint has no {name!r}; is it one of a {self.architecture.upper()}?")
        value = self.left.pop(name)
        if value.dim() != dimensions or value.numel() == 0:
            raise BufferFileError(
                f"The checkpoint's {name!r} has shape {list(value.shape)}; expected {dimensions} dimensions, none 0."
            )
        return value

    def finish(self) -> None:
        if self.left:
            names = sorted(self.left)
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise BufferFileError(
                f"The checkpoint has tensors that a {self.architecture.upper()} of the authors' code has not: "
                f"{', '.join(map(repr, names[:3]))}{more}."
            )


def _base(reader: _Reader, architecture: Architecture, aggregation: Aggregation) -> ReferenceGNN:
    depth = reader.count("layers")
    if depth == 0:
        raise BufferFileError("The checkpoint has no 'layers.0'; pass a state dict of the authors' code.")
    convs = [_LAYERS[architecture](reader, f"layers.{i}") for i in range(depth)]
    residuals: list[nn.Module] = []
    if reader.count("linears"):
        residuals = [_linear(reader, f"linears.{i}", bias=False) for i in range(depth)]
    # The authors rename the norms of a model with buffers, and build one for the last layer that they never apply.
    group = "norms_buffer" if reader.count("layer_buffers") and reader.count("norms_buffer") else "norms"
    norms: list[nn.Module] = [_layer_norm(reader, f"{group}.{i}") for i in range(reader.count(group))]
    norms = norms[: depth - 1]
    if norms and len(norms) < depth - 1:
        raise BufferFileError(f"The checkpoint has {len(norms)} norms; expected one for each hidden layer.")
    return ReferenceGNN(convs, residuals, norms, aggregation if architecture == "gcn" else None).eval()


def _tiny_graph(base: ReferenceGNN) -> tuple[Tensor, Tensor]:
    """Two nodes and an edge, to run a model on."""
    conv: Any = base.convs[0]
    width = conv.nn.in_features if isinstance(conv, GINConv) else conv.in_channels
    like = next(base.parameters())
    return like.new_zeros(2, width), torch.tensor([[0, 1], [1, 0]], device=like.device)


def _buffered(
    base: ReferenceGNN,
    graph: tuple[Tensor, Tensor],
    buffers: list[tuple[Tensor, Tensor]],
    architecture: Architecture,
) -> BufferedGNN:
    # The authors' GIN adds the term after its MLP.
    config = BufferConfig(bias=True, site="output" if architecture == "gin" else "aggregation")
    model = attach(base, graph, config)
    if len(model.blocks) != len(buffers):
        raise BufferFileError(
            f"The checkpoint has {len(buffers)} buffers, but its layers aggregate {len(model.blocks)} times."
        )
    for i, (weight, bias) in enumerate(buffers):
        block = cast(Any, model.blocks[i])
        _fill(block.weight.t(), weight, f"layer_buffers.{i}.weight")
        _fill(block.bias, bias, f"layer_buffers.{i}.bias")
    return model.eval()


def _fill(parameter: Tensor, value: Tensor, name: str) -> None:
    if parameter.shape != value.shape:
        raise BufferFileError(
            f"The checkpoint's {name!r} has {' x '.join(map(str, value.shape))} entries; expected "
            f"{' x '.join(map(str, parameter.shape))}."
        )
    with torch.no_grad():
        parameter.copy_(value)


def _linear(reader: _Reader, name: str, *, bias: bool) -> nn.Linear:
    weight = reader.take(f"{name}.weight", 2)
    linear = nn.Linear(weight.size(1), weight.size(0), bias).to(weight)
    _fill(linear.weight, weight, f"{name}.weight")
    if bias:
        _fill(linear.bias, reader.take(f"{name}.bias", 1), f"{name}.bias")
    return linear


def _layer_norm(reader: _Reader, name: str) -> nn.LayerNorm:
    weight = reader.take(f"{name}.weight", 1)
    norm = nn.LayerNorm(weight.numel()).to(weight)
    _fill(norm.weight, weight, f"{name}.weight")
    _fill(norm.bias, reader.take(f"{name}.bias", 1), f"{name}.bias")
    return norm


def _gcn(reader: _Reader, name: str) -> nn.Module:
    weight = reader.take(f"{name}.weight", 2)
    conv = GCNConv(weight.size(0), weight.size(1), add_self_loops=False, normalize=False).to(weight)
    _fill(conv.lin.weight.t(), weight, f"{name}.weight")
    _fill(conv.bias, reader.take(f"{name}.bias", 1), f"{name}.bias")
    return cast(nn.Module, conv)


def _sage(reader: _Reader, name: str) -> nn.Module:
    neighbours = reader.take(f"{name}.fc_neigh.weight", 2)
    conv = SAGEConv(neighbours.size(1), neighbours.size(0)).to(neighbours)
    _fill(conv.lin_l.weight, neighbours, f"{name}.fc_neigh.weight")
    _fill(conv.lin_r.weight, reader.take(f"{name}.fc_self.weight", 2), f"{name}.fc_self.weight")
    _fill(conv.lin_l.bias, reader.take(f"{name}.fc_self.bias", 1), f"{name}.fc_self.bias")
    return cast(nn.Module, conv)


def _gat(reader: _Reader, name: str) -> nn.Module:
    weight, source = reader.take(f"{name}.fc.weight", 2), reader.take(f"{name}.attn_l", 3)
    heads, width = source.shape[1:]
    conv = GATConv(weight.size(1), width, heads, add_self_loops=False).to(weight)
    _fill(conv.lin.weight, weight, f"{name}.fc.weight")
    _fill(conv.att_src, source, f"{name}.attn_l")
    _fill(conv.att_dst, reader.take(f"{name}.attn_r", 3), f"{name}.attn_r")
    _fill(conv.bias, reader.take(f"{name}.bias", 1), f"{name}.bias")
    return cast(nn.Module, conv)


def _gin(reader: _Reader, name: str) -> nn.Module:
    linear = _linear(reader, f"{name}.apply_func", bias=True)
    conv = GINConv(nn.Identity(), train_eps=True).to(linear.weight)
    conv.nn = linear  # only now, because a GINConv starts by drawing new weights for its MLP
    _fill(conv.eps, reader.take(f"{name}.eps", 1), f"{name}.eps")
    return cast(nn.Module, conv)


def _sgc(reader: _Reader, name: str) -> nn.Module:
    weight = reader.take(f"{name}.weight", 2)
    # Without buffers nothing in the file tells how often it propagates; the authors always do twice.
    hops = reader.count("layer_buffers") or 2
    conv = BiasFirstSGConv(weight.size(1), weight.size(0), K=hops, add_self_loops=False).to(weight)
    _fill(conv.lin.weight, weight, f"{name}.weight")
    _fill(conv.lin.bias, reader.take(f"{name}.bias", 1), f"{name}.bias")
    return cast(nn.Module, conv)


_LAYERS: dict[Architecture, Callable[[_Reader, str], nn.Module]] = {
    "gcn": _gcn,
    "sage": _sage,
    "gat": _gat,
    "gin": _gin,
    "sgc": _sgc,
}
