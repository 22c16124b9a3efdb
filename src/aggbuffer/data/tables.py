"""A graph as two tables: one row per edge, one row per node."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from aggbuffer.data.columns import Column, Table, labels, numbers, read_table, truths
from aggbuffer.data.splits import MASKS
from aggbuffer.errors import GraphError

if TYPE_CHECKING:
    from torch_geometric.data import Data

SPLIT_NAMES = {
    "train": "train_mask",
    "val": "val_mask",
    "valid": "val_mask",
    "validation": "val_mask",
    "test": "test_mask",
}


def read_tables(folder: Path) -> Data:
    """Read a graph from ``edges.csv|parquet`` and ``nodes.csv|parquet``.

    Args:
        folder: holds both. Edges have the columns ``source`` and ``target``, optionally ``weight``; further
            columns become edge attributes. Nodes have, all optional, ``id`` (what edges refer to; without
            it the number of the row, from 0), ``label`` or ``y``, and ``split`` (train, val, test or empty)
            or ``train_mask``, ``val_mask``, ``test_mask``; all further columns are features.

    Returns:
        ``x`` ``[N, F]``, ``edge_index`` ``[2, E]``, and what the tables have of ``edge_weight`` ``[E]``,
        ``edge_attr`` ``[E, K]``, ``y`` ``[N]`` (-1 where the cell is empty), ``label_names`` if the labels
        are words (their alphabetical order gives their numbers) and masks ``[N]``.

    Raises:
        GraphError: if a table or column is missing or holds something else.
    """
    from torch_geometric.data import Data

    nodes, edges = read_table(folder, "nodes"), read_table(folder, "edges")
    fields: dict[str, Any] = _masks(nodes)
    ids = nodes.take("id")
    found = [name for name in ("label", "y") if name in nodes.columns]
    if len(found) == 2:
        raise GraphError(f"{nodes.name} has both a column 'label' and a column 'y'; keep one of them.")
    if found:
        classes, names = labels(nodes.columns.pop(found[0]), found[0], nodes.name)
        fields["y"] = torch.from_numpy(classes)
        if names:
            fields["label_names"] = names
    if not nodes.columns:
        raise GraphError(
            f"{nodes.name} has no feature column; every column besides id, label, split and the masks is one."
        )
    fields["x"] = _stack(nodes)
    fields["edge_index"] = _endpoints(edges, ids, nodes)
    weight = edges.take("weight")
    if weight is not None:
        fields["edge_weight"] = torch.from_numpy(numbers(weight, "weight", edges.name))
    if edges.columns:
        fields["edge_attr"] = _stack(edges)
    return Data(**fields)


def _stack(table: Table) -> Tensor:
    """The remaining columns side by side, ``[rows, columns]`` float32."""
    columns = [numbers(column, name, table.name) for name, column in table.columns.items()]
    return torch.from_numpy(np.stack(columns, axis=1))


def _endpoints(edges: Table, ids: Column | None, nodes: Table) -> Tensor:
    """Row numbers ``[2, E]`` of the nodes that the edges name."""
    names = range(nodes.rows) if ids is None else ids.tolist()
    row_of = {str(name): row for row, name in enumerate(names)}
    if len(row_of) < nodes.rows:
        twice, _ = Counter(str(name) for name in names).most_common(1)[0]
        raise GraphError(f"{nodes.name} has two rows with id '{twice}'; every node needs an id of its own.")
    ends = []
    for side in ("source", "target"):
        column = edges.take(side)
        if column is None:
            raise GraphError(
                f"{edges.name} has no column '{side}': it has {', '.join(edges.header)}; "
                f"name the ends of an edge 'source' and 'target'."
            )
        try:
            ends.append([row_of[str(name)] for name in column.tolist()])
        except KeyError as error:
            kind = f"none of the ids in {nodes.name}" if ids is not None else f"no row of {nodes.name}"
            hint = "" if ids is not None else "; rows count from 0, or add a column 'id'"
            raise GraphError(
                f"{edges.name} names the node '{error.args[0]}' as a {side}, which is {kind}{hint}."
            ) from None
    return torch.tensor(ends, dtype=torch.long)


def _masks(nodes: Table) -> dict[str, Tensor]:
    """Masks ``[N]`` from a column ``split`` or from one column each."""
    masks = {
        name: torch.from_numpy(truths(nodes.columns.pop(name), name, nodes.name))
        for name in MASKS
        if name in nodes.columns
    }
    split = nodes.take("split")
    if split is None:
        return masks
    if masks:
        raise GraphError(f"{nodes.name} has a column 'split' and a column '{next(iter(masks))}'; keep one.")
    masks = {name: torch.zeros(nodes.rows, dtype=torch.bool) for name in MASKS}
    for row, value in enumerate(split.tolist()):
        word = "" if value is None else str(value).strip().lower()
        if word and word not in SPLIT_NAMES:
            raise GraphError(
                f"Row {row + 1} of {nodes.name} has '{value}' in the column 'split'; "
                f"train, val, test or an empty cell was expected."
            )
        if word:
            masks[SPLIT_NAMES[word]][row] = True
    return masks
