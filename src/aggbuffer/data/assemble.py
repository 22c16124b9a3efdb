"""From named tensors, whatever a file calls them, to a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from aggbuffer.data.splits import MASKS, pick_mask
from aggbuffer.errors import GraphError

if TYPE_CHECKING:
    from torch_geometric.data import Data

# What the library calls it, then what files call it.
NAMES = {
    "x": ("x", "features", "node_features"),
    "edge_index": ("edge_index", "edges"),
    "y": ("y", "labels", "node_labels"),
    "edge_weight": ("edge_weight",),
    "edge_attr": ("edge_attr",),
    "train_mask": ("train_mask", "train_masks"),
    "val_mask": ("val_mask", "val_masks"),
    "test_mask": ("test_mask", "test_masks"),
}
KNOWN = frozenset(name for names in NAMES.values() for name in names)


def assemble(items: Mapping[str, Any], split: int, source: str) -> Data:
    """Build a graph from the entries of a file.

    Args:
        items: at least ``x`` ``[N, F]`` and ``edge_index`` ``[2, E]`` or ``[E, 2]``, under any of their
            names; entries with other names are passed on as they are.
        split: which split to take from masks that hold several.
        source: what to call the file in messages.

    Returns:
        The graph, with the library's names: ``x`` float32, ``edge_index`` ``[2, E]`` int64, ``y`` as it was
        with a single column flattened, masks ``[N]`` bool.

    Raises:
        GraphError: if something is missing, given twice, or has an impossible shape or type.
    """
    from torch_geometric.data import Data

    fields: dict[str, Any] = {name: value for name, value in items.items() if name not in KNOWN}
    for name, aliases in NAMES.items():
        found = [alias for alias in aliases if items.get(alias) is not None]
        if len(found) > 1:
            raise GraphError(f"{source} holds both '{found[0]}' and '{found[1]}'; keep one of them.")
        if found:
            fields[name] = _tensor(items[found[0]], found[0], source)
    for name, what in (("x", "node features"), ("edge_index", "edges")):
        if name not in fields:
            have = ", ".join(f"'{key}'" for key in items) or "nothing"
            raise GraphError(f"{source} has no {what}: it holds {have}; store them as '{name}' or '{NAMES[name][1]}'.")
    fields["x"] = _matrix(fields["x"], source)
    fields["edge_index"] = _pairs(fields["edge_index"], source)
    if "y" in fields and fields["y"].dim() == 2 and fields["y"].shape[1] == 1:
        fields["y"] = fields["y"].flatten()
    for name in MASKS:
        if name in fields:
            fields[name] = pick_mask(fields[name], split, len(fields["x"]), f"{name} of {source}")
    return Data(**fields)


def _tensor(value: Any, name: str, source: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise GraphError(f"'{name}' of {source} is a {type(value).__name__}; a tensor was expected.")
    return value


def _matrix(x: Tensor, source: str) -> Tensor:
    """Features as ``[N, F]`` float32."""
    if x.dim() != 2 or x.is_complex():
        raise GraphError(
            f"The node features of {source} have shape {list(x.shape)} and type {x.dtype}; "
            f"a real matrix [nodes, features] was expected."
        )
    return x.float()


def _pairs(edges: Tensor, source: str) -> Tensor:
    """Node pairs as ``[2, E]`` int64, from that or from ``[E, 2]``."""
    if edges.is_floating_point() or edges.is_complex() or edges.dim() != 2 or 2 not in edges.shape:
        raise GraphError(
            f"The edges of {source} have shape {list(edges.shape)} and type {edges.dtype}; "
            f"integer node pairs [2, edges] or [edges, 2] were expected."
        )
    # A 2 x 2 list is read as [2, E], the layout of PyG.
    return (edges if edges.shape[0] == 2 else edges.t().contiguous()).long()
