"""Raw files of the benchmark graphs, read without the libraries that published them.

Every reader takes a graph's folder and returns ``x`` ``[N, F]`` float32, ``edge_index`` ``[2, E]`` int64,
``y`` ``[N]`` int64 and, where the files have them, masks ``[N]`` or ``[N, S]`` or ``[S, N]`` bool. All graphs are
undirected, without duplicates or self-loops, and features are raw unless the reader says otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from aggbuffer.data.catalogue import Loader
from aggbuffer.data.edges import from_csr, undirected
from aggbuffer.data.npz import open_npz, read_npz, tensors
from aggbuffer.data.planetoid import read_planetoid
from aggbuffer.data.splits import MASKS

Items = dict[str, Tensor]


def _sparse_npz(folder: Path) -> Items:
    """Photo, Computers, CS, Physics. Word counts stay counts, as in the paper (PyG turns them into 0 and 1)."""
    data = read_npz(next((folder / "raw").glob("*.npz")))
    return {name: data[name] for name in ("x", "edge_index", "y")}


def _masked_npz(folder: Path) -> Items:
    """Chameleon and Squirrel, filtered: ten splits."""
    path = next((folder / "raw").glob("*.npz"))
    names = {"node_features": "x", "node_labels": "y", "edges": "edge_index"} | {f"{m}s": m for m in MASKS}
    with open_npz(path) as archive:
        items = {names[name]: tensor for name, tensor in tensors(archive, path, names).items()}
    return items | {"edge_index": undirected(items["edge_index"].t(), len(items["x"]))}


def _wikics(folder: Path) -> Items:
    """Wiki-CS. Its public masks are left out: the paper draws random splits."""
    content = json.loads((folder / "raw" / "data.json").read_text(encoding="utf-8"))
    pairs = [(source, target) for source, targets in enumerate(content["links"]) for target in targets]
    x = torch.tensor(content["features"])
    return {
        "x": x,
        "y": torch.tensor(content["labels"]),
        "edge_index": undirected(torch.tensor(pairs).t(), len(x)),
    }


def _actor(folder: Path) -> Items:
    """Actor: ten splits. The file has one direction of every edge; both are given here."""
    raw = folder / "raw"
    lines = (raw / "out1_node_feature_label.txt").read_text(encoding="utf-8").splitlines()[1:]
    nodes = [line.split("\t") for line in lines]
    words = {int(node): [int(word) for word in listed.split(",")] for node, listed, _ in nodes}
    x = torch.zeros(len(nodes), max(map(max, words.values())) + 1)
    y = torch.zeros(len(nodes), dtype=torch.long)
    for node, _, label in nodes:
        x[int(node), words[int(node)]] = 1
        y[int(node)] = int(label)
    pairs = torch.from_numpy(np.loadtxt(raw / "out1_graph_edges.txt", dtype=np.int64, skiprows=1))
    items = {"x": x, "y": y, "edge_index": undirected(pairs.t(), len(x))}
    splits: dict[str, list[Tensor]] = {name: [] for name in MASKS}
    for number in range(10):
        path = raw / f"film_split_0.6_0.2_{number}.npz"
        with open_npz(path) as archive:
            for name, mask in tensors(archive, path, MASKS).items():
                splits[name].append(mask.bool())
    return items | {name: torch.stack(masks) for name, masks in splits.items()}


def _ogb(folder: Path) -> Items:
    """ogbn-arxiv: features standardised per column, both directions of every citation, the public split."""

    def table(name: str, dtype: type[np.generic]) -> Tensor:
        return torch.from_numpy(np.loadtxt(folder / name, dtype=dtype, delimiter=",", ndmin=1))

    x = table("raw/node-feat.csv.gz", np.float32)
    x = (x - x.mean(0)) / x.std(0, correction=0)
    masks = {}
    for mask, part in zip(MASKS, ("train", "valid", "test"), strict=True):
        masks[mask] = torch.zeros(len(x), dtype=torch.bool)
        masks[mask][table(f"split/time/{part}.csv.gz", np.int64)] = True
    edges = undirected(table("raw/edge.csv.gz", np.int64).t(), len(x))
    return {"x": x, "y": table("raw/node-label.csv.gz", np.int64), "edge_index": edges} | masks


def _saint(folder: Path) -> Items:
    """Flickr: the public split. Both directions of every edge are in the file."""
    raw = folder / "raw"
    x = torch.from_numpy(np.load(raw / "feats.npy", allow_pickle=False)).float()
    with open_npz(raw / "adj_full.npz") as archive:
        indptr, indices = tensors(archive, raw / "adj_full.npz", ("indptr", "indices")).values()
    classes = json.loads((raw / "class_map.json").read_text(encoding="utf-8"))
    roles = json.loads((raw / "role.json").read_text(encoding="utf-8"))
    y = torch.tensor([classes[str(node)] for node in range(len(x))])
    masks = {}
    for mask, part in zip(MASKS, ("tr", "va", "te"), strict=True):
        masks[mask] = torch.zeros(len(x), dtype=torch.bool)
        masks[mask][torch.tensor(roles[part])] = True
    return {"x": x, "y": y, "edge_index": from_csr(indptr, indices)} | masks


def _reddit(folder: Path) -> Items:
    """Reddit: the public split. Both directions are in the file; sorting 115 million edges again is spared."""
    path = folder / "raw" / "reddit_data.npz"
    with open_npz(path) as archive:
        x, y, part = tensors(archive, path, ("feature", "label", "node_types")).values()
    path = folder / "raw" / "reddit_graph.npz"
    with open_npz(path) as archive:
        edges = torch.stack([end.long() for end in tensors(archive, path, ("row", "col")).values()])
    masks = {mask: part == number for number, mask in enumerate(MASKS, start=1)}
    return {"x": x.float(), "y": y.long(), "edge_index": edges} | masks


READERS: Mapping[Loader, Callable[[Path], Items]] = {
    "planetoid": read_planetoid,
    "sparse_npz": _sparse_npz,
    "masked_npz": _masked_npz,
    "wikics": _wikics,
    "actor": _actor,
    "ogb": _ogb,
    "saint": _saint,
    "reddit": _reddit,
}
