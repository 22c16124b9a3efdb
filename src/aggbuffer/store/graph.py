"""A graph on disk as the library sees it: arrays that are mapped, of which only what is touched is ever read."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from aggbuffer.data.splits import MASKS
from aggbuffer.errors import GraphError
from aggbuffer.files import checked_path
from aggbuffer.store.layout import COLUMN, DEGREE, FEATURES, LABELS, META, POINTER, WEIGHT, Meta, checksums

_PROBED_EDGES = 2**14


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
    """

    def __init__(self, path: Path, meta: Meta) -> None:
        self.path, self.meta = path, meta
        self.pointer, self.column, self.degree = self._map(POINTER), self._map(COLUMN), self._map(DEGREE)
        self.weight = self._map(WEIGHT) if WEIGHT in meta.files else None
        self.y = self._map(LABELS) if LABELS in meta.files else None
        self._masks = {name: self._map(f"{name}.npy") for name in MASKS if f"{name}.npy" in meta.files}
        self._features = self._map(FEATURES)

    def __repr__(self) -> str:
        return f"GraphStore({str(self.path)!r}, {self.num_nodes:,} nodes, {self.num_edges:,} edges)"

    @property
    def num_nodes(self) -> int:
        return self.meta.nodes

    @property
    def num_edges(self) -> int:
        return self.meta.edges

    @property
    def num_features(self) -> int:
        return self.meta.features

    @property
    def is_undirected(self) -> bool:
        """Whether every edge but self-loops has its reverse."""
        return self.meta.undirected

    def features(self, nodes: Tensor) -> Tensor:
        """Features of some nodes, ``[M, F]``."""
        return self._features.index_select(0, nodes)

    def get(self, name: str, default: Tensor | None = None) -> Tensor | None:
        """Labels (``"y"``) or a mask, as a ``Data`` gives them."""
        found = self.y if name == "y" else self._masks.get(name)
        return default if found is None else found

    def probe(self) -> Data:
        """A small part of the graph, enough to see which layers a model runs: some nodes and what leads to them."""
        last = int(torch.searchsorted(self.pointer, _PROBED_EDGES).clamp(2, self.num_nodes))
        targets = torch.arange(last)
        begin, end = int(self.pointer[0]), int(self.pointer[last])
        source = self.column[begin:end][:_PROBED_EDGES].long()
        target = torch.repeat_interleave(targets, self.pointer[: last + 1].diff())[:_PROBED_EDGES]
        nodes, places = torch.unique(torch.cat([targets, source]), return_inverse=True)
        edge_index = torch.stack([places[last:], torch.searchsorted(nodes, target)])
        data = Data(x=self.features(nodes), edge_index=edge_index)
        if self.weight is not None:
            data.edge_weight = self.weight[begin:end][:_PROBED_EDGES].clone()
        return data

    def _map(self, name: str) -> Tensor:
        array = np.load(self.path / name, mmap_mode="r", allow_pickle=False)
        facts = self.meta.files[name]
        if array.dtype.name != facts.dtype or array.shape != facts.shape:
            raise GraphError(f"{name} in the store {self.path} is not what {META} says; build it anew.")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the array cannot be written to, which nothing here does
            return torch.from_numpy(array)


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
