"""What mini-batches and layer-wise inference ask of a graph, whether it lies in memory or on disk."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal, Protocol, TypeGuard, cast

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from aggbuffer.checkpoint import run_identity
from aggbuffer.errors import GraphError
from aggbuffer.graph import Graph, coo, is_sparse_adjacency

Layout = Literal["edge_index", "csr", "coo", "sparse"]
Nodes = Tensor | slice

_OF_THE_GRAPH = ("x", "edge_index", "adj_t")
VALUES = "adj_t"  # the name of the values of a sparse adjacency among the attributes of edges


class NodeSource(Protocol):
    """A graph whose in-edges are sorted by target. Edges are numbered by their place in :attr:`column`.

    Attributes may be properties, and tensors may be memory-mapped; none of them is ever written to.

    Attributes:
        num_nodes: N.
        num_features: F.
        num_edges: E, self-loops included.
        dtype: Of the features.
        pointer: ``[N + 1]`` int64: the in-edges of node v are ``pointer[v]`` to ``pointer[v + 1]``.
        column: ``[E]`` int32 or int64, the source of each edge, sorted within a target.
        degree: ``[N]`` float32, in-degrees without self-loops.
        has_loops: Whether there is a self-loop.
        is_undirected: Whether every edge has its reverse.
        layout: How the model expects its edges.
        node_names: Attributes of nodes, beside the features, that batches carry along.
        edge_names: Attributes of edges, such as ``"edge_weight"``, that batches carry along.
        matrix: The features as one tensor ``[N, F]``, which may be memory-mapped; None where there is none.
    """

    @property
    def num_nodes(self) -> int: ...
    @property
    def num_features(self) -> int: ...
    @property
    def num_edges(self) -> int: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def pointer(self) -> Tensor: ...
    @property
    def column(self) -> Tensor: ...
    @property
    def degree(self) -> Tensor: ...
    @property
    def has_loops(self) -> bool: ...
    @property
    def is_undirected(self) -> bool: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def node_names(self) -> tuple[str, ...]: ...
    @property
    def edge_names(self) -> tuple[str, ...]: ...
    @property
    def matrix(self) -> Tensor | None: ...

    def features(self, nodes: Nodes) -> Tensor:
        """``[n, F]`` in memory, in the order of ``nodes``."""
        ...

    def node_values(self, name: str, nodes: Nodes) -> Tensor:
        """One of :attr:`node_names`, ``[n, …]``."""
        ...

    def edge_values(self, name: str, edges: Nodes) -> Tensor:
        """One of :attr:`edge_names`, ``[e, …]``, for edges by their numbers."""
        ...

    def get(self, name: str) -> Any:
        """Labels ``"y"`` or a mask by its name, for all nodes, or None; as ``Data.get`` does."""
        ...

    def digest(self) -> str:
        """Changes with anything that decides how a run on this graph goes, as a checkpoint must notice."""
        ...


def is_source(data: object) -> TypeGuard[NodeSource]:
    """Whether ``data`` offers what :class:`NodeSource` says."""
    return not isinstance(data, Data) and all(hasattr(data, name) for name in ("pointer", "column", "edge_values"))


def as_source(data: object) -> NodeSource:
    """``data`` itself, or a checked graph in memory as a source."""
    return data if is_source(data) else GraphSource(Graph.of(data))


def check_on_cpu(model: nn.Module, source: NodeSource) -> None:
    """Refuse a model or a graph elsewhere, as batches and chunks are made on the CPU."""
    places = {parameter.device.type for parameter in model.parameters()}
    if isinstance(source, GraphSource):
        places.add(source.graph.x.device.type)
    if elsewhere := sorted(places - {"cpu"}):
        raise GraphError(
            f"The model or the graph is on {elsewhere[0]}; mini-batches and layer-wise inference run on the CPU. Call "
            ".cpu() on both."
        )


class GraphSource:
    """A graph in memory.

    Args:
        graph: The checked graph.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.num_nodes, self.num_features, self.num_edges = graph.num_nodes, graph.x.size(1), graph.num_edges
        self.dtype = graph.x.dtype
        data = graph.data
        self._adjacency = data.get("edge_index", data.get("adj_t"))
        self.layout: Layout = _layout(self._adjacency)
        named = [key for key in data.keys() if key not in _OF_THE_GRAPH]  # noqa: SIM118 (a PyG Data is no mapping)
        named = [key for key in named if isinstance(data[key], Tensor)]
        self.edge_names = tuple(key for key in named if data.is_edge_attr(key))
        self.node_names = tuple(key for key in named if data.is_node_attr(key) and key not in self.edge_names)
        if self.layout != "edge_index":
            self.edge_names = (*self.edge_names, VALUES)

    @property
    def matrix(self) -> Tensor:
        return self.graph.x

    @cached_property
    def _sorted(self) -> tuple[Tensor, Tensor]:
        """The sources by target, and the graph's edge behind each."""
        key = self.graph.target * self.num_nodes + self.graph.source
        order = key.argsort()
        return self.graph.source[order].int(), order

    @cached_property
    def column(self) -> Tensor:
        if self.edge_names or "_sorted" in self.__dict__:
            return self._sorted[0]
        # Sorting the numbers themselves takes a third of the memory that sorting them with their places does.
        key = (self.graph.target * self.num_nodes).add_(self.graph.source).cpu()
        key.numpy().sort()
        return key.remainder_(self.num_nodes).int()

    @property
    def order(self) -> Tensor:
        """The graph's own number of each edge, ``[E]``."""
        return self._sorted[1]

    @cached_property
    def pointer(self) -> Tensor:
        return pointer_of(torch.bincount(self.graph.target, minlength=self.num_nodes))

    @cached_property
    def degree(self) -> Tensor:
        counts = self.pointer.diff()
        if self.has_loops:
            counts = counts - torch.bincount(self.graph.target[self.graph.is_loop], minlength=self.num_nodes)
        return counts.float()

    @cached_property
    def has_loops(self) -> bool:
        return bool(self.graph.is_loop.any())

    @cached_property
    def is_undirected(self) -> bool:
        """Whether the reversed edges are the same set, told by sorting them."""
        reverse = (self.graph.source * self.num_nodes).add_(self.graph.target).cpu()
        reverse.numpy().sort()
        row = torch.repeat_interleave(self.pointer.diff(), output_size=self.num_edges)
        return torch.equal(reverse, row.mul_(self.num_nodes).add_(self.column))

    @cached_property
    def link(self) -> Tensor:
        """The number of the undirected link that each edge belongs to, as ``Graph.link`` has it, ``[E]``."""
        if not self.is_undirected:
            return self.graph.link.cpu()[self.order]
        # By target and source, the edges from a node of higher number come in the order of their links. Sorted by
        # source, their reverses do, too; so nothing but the latter has to be sorted.
        target = torch.repeat_interleave(
            torch.arange(self.num_nodes, dtype=torch.int32), self.pointer.diff(), output_size=self.num_edges
        )
        upper, lower = self.column >= target, (self.column < target).nonzero().squeeze(-1)
        number = upper.cumsum(0, dtype=torch.int32).sub_(1)
        upper &= self.column != target
        number[lower[self.column[lower].argsort(stable=True)]] = number[upper]
        return number

    @property
    def num_links(self) -> int:
        return int(self.link.max()) + 1 if self.num_edges else 0

    @cached_property
    def is_loop(self) -> Tensor:
        """Which edges are self-loops, ``[E]`` bool."""
        target = torch.repeat_interleave(self.pointer.diff(), output_size=self.num_edges)
        return self.column == target

    @cached_property
    def reversed(self) -> GraphSource:
        """The graph with every edge turned round, for layers that send messages from target to source."""
        return GraphSource(Graph(self.graph.data, self.graph.target, self.graph.source))

    def features(self, nodes: Nodes) -> Tensor:
        return self.graph.x[nodes]

    def node_values(self, name: str, nodes: Nodes) -> Tensor:
        return cast(Tensor, self.graph.data[name])[nodes]

    def edge_values(self, name: str, edges: Nodes) -> Tensor:
        if name == VALUES:
            values = coo(self._adjacency)[2]
            assert values is not None
            return values[self.order[edges]]
        return cast(Tensor, self.graph.data[name])[self.order[edges]]

    def get(self, name: str) -> Any:
        return self.graph.data.get(name)

    def digest(self) -> str:
        return run_identity({}, "", self.graph, ())


def _layout(adjacency: Any) -> Layout:
    if not is_sparse_adjacency(adjacency):
        return "edge_index"
    if not isinstance(adjacency, Tensor):
        return "sparse"
    return "csr" if adjacency.layout == torch.sparse_csr else "coo"


def pointer_of(counts: Tensor) -> Tensor:
    """Where each node's edges start, ``[n + 1]`` int64, from how many each has."""
    pointer = torch.zeros(counts.numel() + 1, dtype=torch.int64)
    torch.cumsum(counts, 0, out=pointer[1:])
    return pointer


def subgraph(source: NodeSource, nodes: Nodes, ends: Tensor, edges: Tensor) -> Data:
    """Some nodes and edges as the ``Data`` that a model of this graph is called with.

    Args:
        source: The whole graph.
        nodes: ``[n]`` numbers in it.
        ends: ``[2, e]`` source and target of each edge among ``nodes``, by their places there, sorted by target.
        edges: ``[e]`` their numbers in the whole graph.
    """
    x = source.features(nodes)
    data = Data(x=x)
    for name in source.node_names:
        data[name] = source.node_values(name, nodes)
    for name in source.edge_names:
        if name != VALUES:
            data[name] = source.edge_values(name, edges)
    if source.layout == "edge_index":
        data.edge_index = ends
    else:
        values = source.edge_values(VALUES, edges) if VALUES in source.edge_names else torch.ones(edges.numel())
        data.adj_t = _adjacency_of(source.layout, ends, values, x.size(0))
    return data


def _adjacency_of(layout: Layout, ends: Tensor, values: Tensor, count: int) -> Any:
    if layout == "sparse":
        from torch_sparse import SparseTensor

        return SparseTensor(row=ends[1], col=ends[0], value=values, sparse_sizes=(count, count))
    order = (ends[1] * count + ends[0]).argsort()  # the columns of a batch are numbered anew
    column, row, values = ends[0][order], ends[1][order], values[order]
    if layout == "coo":
        return torch.sparse_coo_tensor(torch.stack([row, column]), values, (count, count), is_coalesced=True)
    return torch.sparse_csr_tensor(pointer_of(torch.bincount(row, minlength=count)), column, values, (count, count))
