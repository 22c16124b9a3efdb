"""A graph on disk as a :class:`~aggbuffer.scale.source.NodeSource`: arrays that are mapped and read where touched."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from aggbuffer.data.splits import MASKS
from aggbuffer.errors import GraphError
from aggbuffer.files import checked_path
from aggbuffer.scale.source import Layout, Nodes
from aggbuffer.store.layout import COLUMN, DEGREE, FEATURES, LABELS, META, POINTER, WEIGHT, Meta, checksums

_EDGE_WEIGHT = "edge_weight"


class GraphStore:
    """A store that was opened with :func:`open`.

    Attributes:
        path: Its folder.
        meta: What it says of itself.
        pointer: ``[N + 1]`` int64: where each node's incoming edges begin.
        column: ``[E]`` int32 or int64: their sources. An edge's number is its place here.
        degree: ``[N]`` float32, in-degree without self-loops.
        weight: ``[E]`` float32, or None.
        y: Labels, ``[N]`` or ``[N, L]``, or None.
        matrix: Features, ``[N, F]`` float32.
    """

    layout: Layout = "edge_index"
    dtype = torch.float32

    def __init__(self, path: Path, meta: Meta) -> None:
        self.path, self.meta = path, meta
        self.pointer, self.column, self.degree = self._map(POINTER), self._map(COLUMN), self._map(DEGREE)
        self.weight = self._map(WEIGHT) if WEIGHT in meta.files else None
        self.y = self._map(LABELS) if LABELS in meta.files else None
        self._masks = {name: self._map(f"{name}.npy") for name in MASKS if f"{name}.npy" in meta.files}
        self.matrix = self._map(FEATURES)

    def __repr__(self) -> str:
        return f"GraphStore({str(self.path)!r}, {self.num_nodes:,} nodes, {self.num_edges:,} edges)"

    @property
    def num_nodes(self) -> int:
        return self.meta.nodes

    @property
    def num_edges(self) -> int:
        return self.meta.edges

    @property
    def num_links(self) -> int:
        """How many undirected links there are, where there are only those; a self-loop is one."""
        return (self.num_edges + self.meta.self_loops) // 2

    @property
    def num_features(self) -> int:
        return self.meta.features

    @property
    def is_undirected(self) -> bool:
        """Whether every edge but self-loops has its reverse."""
        return self.meta.undirected

    @property
    def has_loops(self) -> bool:
        return self.meta.self_loops > 0

    @property
    def node_names(self) -> tuple[str, ...]:
        """What batches carry along for their nodes."""
        return (*(["y"] if self.y is not None else []), *self._masks)

    @property
    def edge_names(self) -> tuple[str, ...]:
        """What batches carry along for their edges."""
        return () if self.weight is None else (_EDGE_WEIGHT,)

    def features(self, nodes: Nodes) -> Tensor:
        """Features of some nodes, ``[M, F]`` in memory."""
        return _read(self.matrix, nodes)

    def node_values(self, name: str, nodes: Nodes) -> Tensor:
        """Labels (``"y"``) or a mask of some nodes, ``[M, …]`` in memory."""
        values = self.get(name)
        assert values is not None
        return _read(values, nodes)

    def edge_values(self, name: str, edges: Nodes) -> Tensor:
        """Weights of some edges by their numbers, ``[M]`` in memory."""
        assert name == _EDGE_WEIGHT
        assert self.weight is not None
        return _read(self.weight, edges)

    def digest(self) -> str:
        """What tells this graph from others: all checksums of its files."""
        return hashlib.sha256((self.path / META).read_bytes()).hexdigest()

    def get(self, name: str, default: Tensor | None = None) -> Tensor | None:
        """Labels (``"y"``) or a mask, as a ``Data`` gives them."""
        found = self.y if name == "y" else self._masks.get(name)
        return default if found is None else found

    def _map(self, name: str) -> Tensor:
        array = np.load(self.path / name, mmap_mode="r", allow_pickle=False)
        facts = self.meta.files[name]
        if array.dtype.name != facts.dtype or array.shape != facts.shape:
            raise GraphError(f"{name} in the store {self.path} is not what {META} says; build it anew.")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the array cannot be written to, which nothing here does
            return torch.from_numpy(array)


def _read(values: Tensor, at: Nodes) -> Tensor:
    return values[at].clone() if isinstance(at, slice) else values.index_select(0, at)


def open(path: str | Path) -> GraphStore:
    """Open a store; costs no more for a large one.

    Raises:
        GraphError: If the folder is no store, one of another format, or has lost something.

    Example:
        >>> store = aggbuffer.store.open("graph.store")
        >>> result = aggbuffer.fit(model, store, batch=aggbuffer.BatchConfig())
    """
    path = checked_path(path)
    if not path.is_dir():
        raise GraphError(f"There is no folder {path}; give one that aggbuffer store build has made.")
    return GraphStore(path, Meta.read(path))


def check(path: str | Path) -> GraphStore:
    """Read the whole store and compare every block with its checksum.

    Raises:
        GraphError: If something has changed since it was built.
    """
    store = open(path)
    for name, facts in store.meta.files.items():
        for block, (found, expected) in enumerate(zip(checksums(store.path / name), facts.crc32, strict=True)):
            if found != expected:
                raise GraphError(
                    f"{name} in the store {store.path} is damaged in its block {block} of 16 MiB (its CRC-32 is "
                    f"{found:08x} instead of {expected:08x}); build it anew."
                )
    return store


def is_store(path: Path) -> bool:
    """Whether a folder looks like a store, whole or not."""
    return (path / META).is_file()
