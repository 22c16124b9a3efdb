"""The one graph type inside the library, and the graph conventions, written once.

Messages go from source to target and degrees are in-degrees. Self-loops never count in a degree and are never
dropped. The two directions of an undirected edge belong together. Duplicate edges are refused.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from aggbuffer.errors import GraphError

GraphLike = Data | tuple[Tensor, Tensor] | dict[str, Any]

_SPARSE_LAYOUTS = (torch.sparse_csr, torch.sparse_coo, torch.sparse_csc)


def is_sparse_adjacency(edges: object) -> bool:
    """Whether ``edges`` is a (transposed) adjacency matrix rather than a ``[2, E]`` index."""
    return (isinstance(edges, Tensor) and edges.layout in _SPARSE_LAYOUTS) or _is_torch_sparse(edges)


def _is_torch_sparse(edges: object) -> bool:
    return type(edges).__name__ == "SparseTensor" and hasattr(edges, "coo")


def coo(edges: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sources ``[E]``, targets ``[E]`` and values ``[E]`` (or None) of any of PyG's edge formats.

    A sparse adjacency is read as PyG reads it: transposed, so that rows are targets.
    """
    if _is_torch_sparse(edges):
        row, col, value = cast(Any, edges).coo()
        return col, row, value
    if edges.layout == torch.sparse_csr:
        counts, column = edges.crow_indices().diff(), edges.col_indices()
        if torch.compiler.is_compiling():
            # torch.export takes column for empty and would write that length down; only the counts tell the true one.
            row = torch.repeat_interleave(counts)
            return column.index_select(0, torch.arange(row.numel(), device=row.device)), row, edges.values()
        return column, torch.repeat_interleave(counts, output_size=column.numel()), edges.values()
    if edges.layout == torch.sparse_coo:
        index = edges._indices()
        return index[1], index[0], edges._values()
    if edges.layout == torch.sparse_csc:
        raise GraphError("The adjacency is in sparse CSC layout; pass torch.sparse_csr or a [2, E] edge_index.")
    return edges[0], edges[1], None


def in_degree(edges: Tensor, num_nodes: int, *, flow: str = "source_to_target", weight: Tensor | None = None) -> Tensor:
    """In-degrees without self-loops, ``[N]`` in at least float32: D of the paper.

    Args:
        edges: ``[2, E]`` or a sparse adjacency in PyG's transposed convention.
        num_nodes: N.
        flow: PyG's flow of the layer that asks; ``"target_to_source"`` makes sources the receivers.
        weight: ``[E]`` to sum instead of counting edges.
    """
    source, target, _ = coo(edges)
    if flow == "target_to_source":
        source, target = target, source
    # Half precision cannot count past 2,048 (bfloat16: 256), so degrees are never narrower than float32.
    dtype = torch.float64 if weight is not None and weight.dtype == torch.float64 else torch.float32
    counted = (source != target).to(dtype)
    if weight is not None:
        counted = counted * weight.to(dtype)
    return torch.zeros(num_nodes, dtype=dtype, device=target.device).scatter_add_(0, target, counted)


@dataclass(frozen=True)
class Graph:
    """A checked, homogeneous graph, and the way back to the user's own format.

    Attributes:
        data: The user's data; never written to.
        source: ``[E]`` source node of each edge.
        target: ``[E]`` target node of each edge.
    """

    data: Data
    source: Tensor
    target: Tensor

    @classmethod
    def of(cls, data: object) -> Graph:
        """Check ``data`` (a PyG ``Data`` or a pair ``(x, edge_index)``) and wrap it.

        Raises:
            GraphError: With what was found, what was expected and what to do.
        """
        data = _as_data(data)
        x, edges = _features_and_edges(data)
        _check_features(x)
        source, target = _check_edges(edges, x.size(0))
        _check_edge_attributes(data, source.numel())
        return cls(data, source, target)

    @property
    def x(self) -> Tensor:
        """Node features, ``[N, F]``."""
        return cast(Tensor, self.data.x)

    @property
    def num_nodes(self) -> int:
        return int(self.x.size(0))

    @property
    def num_edges(self) -> int:
        return int(self.source.numel())

    @cached_property
    def is_loop(self) -> Tensor:
        """Which edges are self-loops, ``[E]`` bool."""
        return self.source == self.target

    @cached_property
    def degree(self) -> Tensor:
        """In-degree without self-loops, ``[N]``."""
        return in_degree(torch.stack([self.source, self.target]), self.num_nodes)

    @cached_property
    def link(self) -> Tensor:
        """``[E]``: the number of the undirected link that each edge belongs to.

        Both directions of an edge share their number, so one draw per number keeps or drops them together. A
        directed edge without its reverse has a number of its own.
        """
        low = torch.minimum(self.source, self.target)
        high = torch.maximum(self.source, self.target)
        return cast(Tensor, torch.unique(low * self.num_nodes + high, return_inverse=True)[1])

    @cached_property
    def num_links(self) -> int:
        return int(self.link.max()) + 1 if self.num_edges else 0

    @cached_property
    def is_undirected(self) -> bool:
        """Whether every edge but self-loops has its reverse."""
        return bool((torch.bincount(self.link, minlength=1)[self.link][~self.is_loop] == 2).all())

    def first_edges(self, count: int) -> Graph:
        """The graph itself, or the same nodes with so many of its edges."""
        if self.num_edges <= count:
            return self
        kept = torch.arange(self.num_edges, device=self.source.device) < count
        return Graph(self.subgraph(kept), self.source[kept], self.target[kept])

    def subgraph(self, kept: Tensor) -> Data:
        """A copy of the user's data with only the edges ``kept`` (``[E]`` bool), in the user's own format.

        Weights and attributes go with their edges; nodes, labels and masks stay.
        """
        data, at = copy.copy(self.data), kept.nonzero().view(-1)
        asked = copy.copy(self.data)  # PyG notes its answers in the graph that is asked, and would save them with it
        for key in self.data.keys():  # noqa: SIM118 (a PyG Data is no mapping)
            value = self.data[key]
            if is_sparse_adjacency(value):
                data[key] = _keep_sparse(value, kept)
            elif key == "edge_index":
                data[key] = value.index_select(1, at)
            elif asked.is_edge_attr(key) and isinstance(value, Tensor):
                along = self.data.__cat_dim__(key, value)  # the dimension of its edges: the last, for an index
                data[key] = value.index_select(along, at)
        return data


def _as_data(data: object) -> Data:
    if isinstance(data, HeteroData):
        raise GraphError(
            "The graph is a HeteroData; a buffer needs one node type and one edge type. "
            "Call data.to_homogeneous() first."
        )
    if isinstance(data, tuple | list) and len(data) == 2 and all(isinstance(part, Tensor) for part in data):
        x, edges = data
        data = Data(x=x, adj_t=edges) if is_sparse_adjacency(edges) else Data(x=x, edge_index=edges)
    if hasattr(data, "pointer") and hasattr(data, "column"):
        raise GraphError(
            f"The graph is a {type(data).__name__} on disk, and this needs one in memory; fit, evaluate and infer work "
            "on a graph on disk."
        )
    if not isinstance(data, Data):
        raise GraphError(
            f"The graph is a {type(data).__name__}; expected a torch_geometric.data.Data or a pair (x, edge_index)."
        )
    return data


def _features_and_edges(data: Data) -> tuple[Tensor, Tensor]:
    x, edges, adjacency = data.get("x"), data.get("edge_index"), data.get("adj_t")
    if x is None:
        raise GraphError("The graph has no node features; set data.x to a float tensor of shape [nodes, features].")
    for name, value in (("x", x), ("edge_index", edges), ("adj_t", adjacency)):
        usable = isinstance(value, Tensor) or (name != "x" and _is_torch_sparse(value))
        if value is not None and not usable:
            raise GraphError(f"data.{name} is a {type(value).__name__}; expected a tensor. Call torch.as_tensor on it.")
    if edges is not None and adjacency is not None:
        raise GraphError("The graph has both edge_index and adj_t; keep the one that the model is called with.")
    if edges is None and adjacency is None:
        raise GraphError("The graph has no edges; set data.edge_index ([2, E], source and target) or data.adj_t.")
    return cast(Tensor, x), cast(Tensor, edges if edges is not None else adjacency)


def _check_features(x: Tensor) -> None:
    if x.layout != torch.strided:
        raise GraphError(f"data.x is in layout {x.layout}; expected a dense tensor. Call data.x.to_dense().")
    if x.dim() != 2:
        raise GraphError(f"data.x has shape {list(x.shape)}; expected [nodes, features].")
    if not x.is_floating_point():
        raise GraphError(f"data.x has dtype {x.dtype}; expected floating point. Call data.x.float().")
    if x.size(0) == 0:
        raise GraphError("The graph is empty: it has no nodes.")
    if x.size(0) == 1:
        raise GraphError("The graph has a single node; edge robustness needs at least two nodes and an edge.")
    bad = int((~torch.isfinite(x)).sum())
    if bad:
        raise GraphError(
            f"data.x holds {bad} NaN or infinite entries; replace them, for instance with torch.nan_to_num."
        )


def _check_edges(edges: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    if is_sparse_adjacency(edges):
        if tuple(edges.size(i) for i in (0, 1)) != (num_nodes, num_nodes):
            raise GraphError(
                f"The adjacency is {edges.size(0)} x {edges.size(1)}; expected {num_nodes} x {num_nodes}, as data.x "
                f"has {num_nodes} rows."
            )
    elif edges.dim() != 2 or edges.size(0) != 2:
        raise GraphError(f"edge_index has shape {list(edges.shape)}; expected [2, edges].")
    elif edges.dtype not in (torch.int64, torch.int32):
        raise GraphError(f"edge_index has dtype {edges.dtype}; expected whole numbers. Call edge_index.long().")
    source, target, _ = coo(edges)
    source, target = source.long(), target.long()
    if source.numel():
        low = int(torch.minimum(source.min(), target.min()))
        high = int(torch.maximum(source.max(), target.max()))
        if low < 0:
            raise GraphError(f"edge_index holds a negative node number ({low}); expected 0 to {num_nodes - 1}.")
        if high >= num_nodes:
            raise GraphError(
                f"edge_index refers to node {high}, but data.x has {num_nodes} rows; expected 0 to {num_nodes - 1}."
            )
    if bool((source == target).all()):
        raise GraphError("The graph has no edge between two different nodes; there is nothing to be robust against.")
    duplicates = _duplicates((source * num_nodes).add_(target))
    if duplicates:
        raise GraphError(
            f"The graph has {duplicates} duplicate edges; remove them with torch_geometric.utils.coalesce(edge_index)."
        )
    return source, target


def _duplicates(keys: Tensor) -> int:
    """How many of the numbers ``[E]``, which are sorted in place, have been there before."""
    if keys.device.type == "cpu":
        keys.numpy().sort()  # in place: torch's own sort takes three times the memory
    else:
        keys = keys.sort().values
    return int((keys[1:] == keys[:-1]).sum())


def _check_edge_attributes(data: Data, num_edges: int) -> None:
    adjacency = data.get("adj_t", data.get("edge_index"))
    values = coo(adjacency)[2] if is_sparse_adjacency(adjacency) else None
    if values is not None and values.is_floating_point() and not bool(torch.isfinite(values).all()):
        raise GraphError("The adjacency holds NaN or infinite values; replace them or drop those edges.")
    for key in ("edge_weight", "edge_attr"):
        value = data.get(key)
        if value is None:
            continue
        if not isinstance(value, Tensor) or value.dim() == 0:
            raise GraphError(f"data.{key} is a {type(value).__name__}; expected a tensor with one row per edge.")
        if value.size(0) != num_edges:
            raise GraphError(f"data.{key} has {value.size(0)} rows, but the graph has {num_edges} edges.")
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise GraphError(f"data.{key} holds NaN or infinite entries; replace them or drop those edges.")


def _keep_sparse(edges: Tensor, kept: Tensor) -> Tensor:
    """A sparse adjacency with only the entries ``kept``, in the same layout."""
    if _is_torch_sparse(edges):
        return cast(Tensor, cast(Any, edges).masked_select_nnz(kept, layout="coo"))
    column, row, value = coo(edges)
    assert value is not None
    column, row, value = column[kept], row[kept], value[kept]
    size = (int(edges.size(0)), int(edges.size(1)))
    if edges.layout == torch.sparse_coo:
        return torch.sparse_coo_tensor(torch.stack([row, column]), value, size, is_coalesced=True)
    pointer = torch.zeros(size[0] + 1, dtype=row.dtype, device=row.device)
    torch.cumsum(torch.bincount(row, minlength=size[0]), 0, out=pointer[1:])
    return torch.sparse_csr_tensor(pointer, column, value, size)
