"""A random graph of any size, made in bounded memory: uneven degrees, and neighbours that often share their class."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from benchmarks.results import write_json

_AT_ONCE = 2**22  # links or entries that are drawn at a time
_DONE = "graph.json"


@dataclass(frozen=True)
class Shape:
    """What is generated; the defaults are Reddit's size.

    Attributes:
        nodes: N.
        edges: Directed edges, an even number; every link counts twice.
        features: F.
        classes: C.
        homophily: Share of links whose second end is drawn from the first one's class.
        seed: Of everything.
    """

    nodes: int = 232_965
    edges: int = 114_615_892
    features: int = 602
    classes: int = 41
    homophily: float = 0.7
    seed: int = 0

    @property
    def name(self) -> str:
        return f"{self.nodes}-{self.edges}-{self.features}-{self.classes}-{self.homophily}-{self.seed}"


def generate(shape: Shape, cache: Path) -> Path:
    """The folder of a graph, made if it is not there: ``edge_index.npy``, ``x.npy``, ``y.npy``, ``part.npy``."""
    folder = cache / shape.name
    if (folder / _DONE).exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(shape.seed)
    y = np.sort(draw.integers(shape.classes, size=shape.nodes))  # nodes of a class are neighbours, until the last step
    number = draw.permutation(shape.nodes)
    _write_edges(shape, y, number, draw, folder / "edge_index.npy")
    labels = np.empty_like(y)
    labels[number] = y
    np.save(folder / "y.npy", labels)
    np.save(folder / "part.npy", draw.random(shape.nodes, dtype=np.float32))
    _write_features(shape, labels, draw, folder / "x.npy")
    write_json(asdict(shape), folder / _DONE)
    return folder


def load(folder: Path) -> Data:
    """The graph in memory: two thirds of the nodes to train on, a tenth to stop on, the rest to test on."""
    part = torch.from_numpy(np.load(folder / "part.npy"))
    data = Data(
        x=torch.from_numpy(np.load(folder / "x.npy")),
        edge_index=torch.from_numpy(np.load(folder / "edge_index.npy")),
        y=torch.from_numpy(np.load(folder / "y.npy")),
    )
    data.train_mask, data.val_mask, data.test_mask = part < 0.66, (part >= 0.66) & (part < 0.76), part >= 0.76
    return data


def describe(folder: Path) -> dict[str, object]:
    """The shape of a generated graph."""
    return dict(json.loads((folder / _DONE).read_text()))


def _write_edges(
    shape: Shape, y: NDArray[np.int64], number: NDArray[np.int64], draw: np.random.Generator, path: Path
) -> None:
    """Both directions of distinct links without self-loops, shuffled, as ``[2, E]`` int64."""
    links = shape.edges // 2
    most = shape.nodes * (shape.nodes - 1) // 2
    if not 0 < links <= most // 2:
        raise SystemExit(f"{shape.edges} edges do not fit {shape.nodes} nodes; ask for at most {most}.")
    reach = np.cumsum((1.0 - draw.random(shape.nodes)) ** -0.5)  # of a node's weight: a heavy tail
    bounds = np.searchsorted(y, np.arange(shape.classes + 1))
    low_of, high_of = (np.concatenate([[0.0], reach])[bounds[part]] for part in (slice(0, -1), slice(1, None)))
    keys = np.empty(0, dtype=np.int64)
    while keys.size < links:
        fresh = np.empty(min(links - keys.size, 8 * _AT_ONCE) + 1024, dtype=np.int64)
        for start in range(0, fresh.size, _AT_ONCE):
            count = min(_AT_ONCE, fresh.size - start)
            first = np.searchsorted(reach, draw.random(count) * reach[-1], side="right").clip(max=shape.nodes - 1)
            near = draw.random(count) < shape.homophily
            low = np.where(near, low_of[y[first]], 0.0)
            high = np.where(near, high_of[y[first]], reach[-1])
            other = np.searchsorted(reach, low + draw.random(count) * (high - low), side="right")
            ends = number[first], number[other.clip(max=shape.nodes - 1)]
            keys_here = np.minimum(*ends) * shape.nodes + np.maximum(*ends)
            fresh[start : start + count] = np.where(ends[0] == ends[1], -1, keys_here)
        keys = np.concatenate([keys, fresh])
        keys.sort()
        is_new = np.ones(keys.size, dtype=bool)
        np.not_equal(keys[1:], keys[:-1], out=is_new[1:])
        keys = keys[is_new & (keys >= 0)]
    draw.shuffle(keys)
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.int64, shape=(2, 2 * links))
    for start in range(0, links, _AT_ONCE):
        part = slice(start, min(start + _AT_ONCE, links))
        back = slice(links + part.start, links + part.stop)
        out[0, part], out[1, part] = np.divmod(keys[part], shape.nodes)
        out[0, back], out[1, back] = out[1, part], out[0, part]
    out.flush()


def _write_features(shape: Shape, labels: NDArray[np.int64], draw: np.random.Generator, path: Path) -> None:
    """A centre for each class, and noise, ``[N, F]`` float32."""
    centres = draw.standard_normal((shape.classes, shape.features), dtype=np.float32) / 8
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(shape.nodes, shape.features))
    rows = max(1, _AT_ONCE // shape.features)
    for start in range(0, shape.nodes, rows):
        part = labels[start : start + rows]
        out[start : start + rows] = centres[part] + draw.standard_normal((part.size, shape.features), dtype=np.float32)
    out.flush()
