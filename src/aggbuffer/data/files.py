"""Read a user's graph from a file or a folder, without running anything the file contains."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from aggbuffer.data.assemble import NAMES, assemble
from aggbuffer.data.npz import read_npz
from aggbuffer.data.tables import read_tables
from aggbuffer.errors import GraphError

if TYPE_CHECKING:
    from torch_geometric.data import Data

FORMATS = "a .pt file, an .npz file, or a folder with edges.csv and nodes.csv (or .parquet)"


def read_graph(path: str | os.PathLike[str], *, split: int = 0) -> Data:
    """Read a graph.

    Args:
        path: a ``.pt`` file (a PyG ``Data``, or a dictionary of tensors, saved with ``torch.save``; with
            ``edge_index`` or a sparse ``adj_t``), an ``.npz`` file, or a folder of ``edges.csv`` and
            ``nodes.csv``, each possibly ``.parquet``.
        split: which split to take from masks that hold several, counted from 0.

    Returns:
        ``x`` ``[N, F]`` float32, ``edge_index`` ``[2, E]`` int64, and what else the file has of ``y``,
        ``edge_weight``, ``edge_attr``, ``train_mask``, ``val_mask``, ``test_mask``. Whether the graph
        makes sense (duplicates, values that are not numbers, edges out of range) is not checked here.

    Raises:
        GraphError: if the file is missing, damaged, of another kind, or lacks something.
    """
    path = Path(path)
    if path.is_dir():
        return read_tables(path)
    if not path.exists():
        raise GraphError(f"There is no graph at {path}; give {FORMATS}.")
    if path.suffix == ".npz":
        return read_npz(path, split)
    if path.suffix == ".pt":
        return _read_pt(path, split)
    raise GraphError(f"{path} is not in a known format (its name ends in '{path.suffix}'); give {FORMATS}.")


def _read_pt(path: Path, split: int) -> Data:
    from torch_geometric.data import Data

    content = _load_pt(path)
    if isinstance(content, tuple) and content and isinstance(content[0], dict):
        # PyG's own processed files: (fields, slices, class), where one graph needs no slices.
        if len(content) > 1 and content[1]:
            raise GraphError(f"{path} holds many graphs; save the one to use with torch.save(data, path).")
        content = content[0]
    if isinstance(content, Data):
        content = content.to_dict()
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise GraphError(
            f"{path} holds a {type(content).__name__}; a torch_geometric.data.Data or a dictionary of "
            f"tensors was expected."
        )
    return assemble(_with_pairs(content, path.name), split, path.name)


def _with_pairs(items: dict[str, Any], source: str) -> dict[str, Any]:
    """The same with node pairs in place of a sparse ``adj_t``, and its values, unless all are 1, as edge weights."""
    from aggbuffer.graph import coo, is_sparse_adjacency

    adjacency = items.get("adj_t")
    if not is_sparse_adjacency(adjacency):
        return items
    if any(items.get(name) is not None for name in NAMES["edge_index"]):
        raise GraphError(f"{source} holds both node pairs and 'adj_t'; keep one of them.")
    rest = {name: value for name, value in items.items() if name != "adj_t"}
    start, end, values = coo(cast(Tensor, adjacency))
    if values is not None and not bool((values == 1).all()):
        rest["edge_weight"] = values
    return {**rest, "edge_index": torch.stack([start, end])}


def _load_pt(path: Path) -> Any:
    from torch_geometric import EdgeIndex
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage
    from torch_geometric.edge_index import CatMetadata, SortOrder

    allowed = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage, EdgeIndex, CatMetadata, SortOrder]
    try:
        with torch.serialization.safe_globals(allowed), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of sparse tensors and of what it then refuses
            return torch.load(path, map_location="cpu", weights_only=True)
    # A damaged file makes the reader fail in as many ways as there are bytes; all mean the same to the user.
    except Exception as error:
        refused = re.search(r"GLOBAL (\S+) was not an allowed", str(error))
        if refused and refused[1].endswith(".AttrType"):
            raise GraphError(
                f"{path} holds what PyG notes about a graph in use, which cannot be read back safely; save it anew: "
                "torch.save(Data(**data.to_dict()), path)."
            ) from None
        if refused:
            raise GraphError(
                f"{path} holds an object of {refused[1]}, which is refused because loading it could run code; "
                f"save a plain torch_geometric.data.Data or a dictionary of tensors."
            ) from None
        raise GraphError(
            f"{path} cannot be read as a file of torch.save: it is cut short, damaged or of another kind; "
            f"write it anew with torch.save(data, path)."
        ) from None
