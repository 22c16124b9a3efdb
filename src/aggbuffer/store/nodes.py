"""What a store knows of its nodes: features, and, where there are any, labels and masks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from aggbuffer.data.splits import MASKS
from aggbuffer.data.tables import SPLIT_NAMES
from aggbuffer.errors import GraphError
from aggbuffer.store.edges import open_parquet
from aggbuffer.store.growing import GrowingArray
from aggbuffer.store.journal import Journal
from aggbuffer.store.layout import FEATURES, LABELS

Array = npt.NDArray[Any]

FEATURES_IN, LABELS_IN, MASKS_IN, NODES_IN = "features.npy", "labels.npy", "masks.npy", "nodes.parquet"
_COPIES = 4  # of a block of rows are in memory at a time
_BLOCKS_BETWEEN_NOTES = 16


@dataclass(frozen=True)
class NodeInputs:
    """Arrays of a folder, mapped and not read.

    Attributes:
        features: ``[N, F]`` numbers.
        labels: ``[N]`` or ``[N, L]`` numbers, or None.
        masks: ``[N, 3]`` bool, for training, validation and test; or None.
        table: Of labels and masks, in place of these arrays; or None.
    """

    features: Array
    labels: Array | None
    masks: Array | None
    table: Path | None

    @classmethod
    def find(cls, folder: Path) -> NodeInputs:
        """Look at what there is, and refuse what cannot be used before anything is read."""
        if not (folder / FEATURES_IN).is_file():
            raise GraphError(
                f"{folder} has no {FEATURES_IN}; save the features as an array of shape [nodes, features]."
            )
        features = _mapped(folder / FEATURES_IN)
        if features.ndim != 2 or not features.shape[1]:
            raise GraphError(f"{FEATURES_IN} has shape {list(features.shape)}; expected [nodes, features].")
        if len(features) < 2:
            raise GraphError(f"{FEATURES_IN} has {len(features)} rows; a graph needs at least two nodes.")
        labels, masks = (
            _mapped(folder / name) if (folder / name).is_file() else None for name in (LABELS_IN, MASKS_IN)
        )
        if labels is not None and (labels.ndim not in (1, 2) or len(labels) != len(features)):
            raise GraphError(
                f"{LABELS_IN} has shape {list(labels.shape)}; expected a row for each of the {len(features):,} nodes."
            )
        if masks is not None and (masks.dtype != bool or masks.shape != (len(features), 3)):
            raise GraphError(
                f"{MASKS_IN} has shape {list(masks.shape)} and type {masks.dtype}; expected bool of shape "
                f"[{len(features)}, 3], for training, validation and test."
            )
        table = folder / NODES_IN if (folder / NODES_IN).is_file() else None
        if table is not None and (labels is not None or masks is not None):
            raise GraphError(
                f"{folder} has labels or masks in {NODES_IN} and in {LABELS_IN} or {MASKS_IN}; keep one of them."
            )
        return cls(features, labels, masks, table)

    def copy_features(self, folder: Path, memory: int, journal: Journal) -> None:
        """Write the features as float32, refusing NaN."""
        stage, done = "features", journal.state("features") or {"rows": 0}
        count, width = self.features.shape
        rows = _rows(memory, width * max(self.features.dtype.itemsize, 4))
        with GrowingArray(folder / FEATURES, np.float32, done["rows"], (width,)) as out:
            for number, start in enumerate(range(out.rows, count, rows), start=1):
                with np.errstate(over="ignore"):
                    block = self.features[start : start + rows].astype(np.float32)
                if not np.isfinite(block).all():
                    raise _not_finite(block, start)
                out.append(block)
                if number % _BLOCKS_BETWEEN_NOTES == 0 or out.rows == count:
                    out.settle()
                    journal.note(stage, rows=out.rows)

    def copy_rest(self, folder: Path, memory: int) -> None:
        """Write labels and masks."""
        rows = _rows(memory, 64)
        if self.table is not None:
            _copy_table(self.table, folder, len(self.features), rows)
        if self.labels is not None:
            kind = np.int64 if np.issubdtype(self.labels.dtype, np.integer) else np.float32
            _copy(self.labels, folder / LABELS, kind, _rows(memory, 16 * int(np.prod(self.labels.shape[1:]))))
        if self.masks is not None:
            for column, name in enumerate(MASKS):
                _copy(self.masks[:, column], folder / f"{name}.npy", np.bool_, rows)


def _mapped(path: Path) -> Array:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError("it is an archive")
    except (ValueError, EOFError, OSError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise GraphError(f"{path.name} is cut short or no .npy file of numbers ({reason}); write it anew.") from None
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == bool) or np.iscomplexobj(array):
        raise GraphError(f"{path.name} holds {array.dtype} values; expected numbers.")
    return array


def _rows(memory: int, row: int) -> int:
    """How many rows of so many bytes are read at once."""
    return max(1, min(memory, 2**28) // (_COPIES * max(1, row)))


def _not_finite(block: Array, start: int) -> GraphError:
    row, column = np.argwhere(~np.isfinite(block))[0].tolist()
    return GraphError(
        f"{FEATURES_IN} holds a NaN or infinite entry (row {start + row:,}, column {column}, counted from 0; there may "
        "be more); replace them, for instance with numpy.nan_to_num."
    )


def _copy(values: Array, path: Path, dtype: npt.DTypeLike, rows: int) -> None:
    with GrowingArray(path, dtype, 0, values.shape[1:]) as out:
        for start in range(0, len(values), rows):
            out.append(values[start : start + rows])
        out.settle()


def _copy_table(path: Path, folder: Path, count: int, rows: int) -> None:
    """Labels and masks from a table with a row a node: ``label`` or ``y``, ``split`` or one column for each mask."""
    with open_parquet(path) as file:
        names = list(file.schema_arrow.names)
        if file.metadata.num_rows != count:
            raise GraphError(f"{path.name} has {file.metadata.num_rows:,} rows, but {FEATURES_IN} has {count:,}.")
        known = ("label", "y", "split", *MASKS)
        if others := [name for name in names if name not in known]:
            raise GraphError(
                f"{path.name} has a column '{others[0]}'; expected label, split or the masks only, as a store numbers "
                f"nodes by their row and has their features from {FEATURES_IN}."
            )
        if {"label", "y"} <= set(names) or ("split" in names and set(MASKS) & set(names)):
            raise GraphError(f"{path.name} tells labels or masks twice; keep 'label' or 'y', and 'split' or the masks.")
        for name in names:
            batches = (batch.column(0) for batch in file.iter_batches(rows, columns=[name], use_threads=False))
            if name in ("label", "y"):
                kind = str(file.schema_arrow.field(name).type)
                _write(folder / LABELS, np.int64 if "int" in kind else np.float32, _labels(batches, name, kind, path))
            elif name == "split":
                _write_split(folder, batches, path)
            else:
                _write(folder / f"{name}.npy", np.bool_, (_truths(values, name, path) for values in batches))


def _write(path: Path, dtype: npt.DTypeLike, blocks: Iterator[Array]) -> None:
    with GrowingArray(path, dtype, 0) as out:
        for block in blocks:
            out.append(block)
        out.settle()


def _labels(batches: Iterator[Any], name: str, kind: str, path: Path) -> Iterator[Array]:
    """Whole numbers, -1 where a cell is empty, or fractions, NaN where one is."""
    if not any(part in kind for part in ("int", "float", "double")):
        raise GraphError(
            f"The column '{name}' of {path.name} holds {kind}; expected numbers: number the classes from 0."
        )
    for values in batches:
        filled = values.fill_null(-1) if "int" in kind else values
        yield filled.to_numpy(zero_copy_only=False)


def _truths(values: Any, name: str, path: Path) -> Array:
    if str(values.type) != "bool":
        raise GraphError(f"The column '{name}' of {path.name} holds {values.type}; expected true or false.")
    truths: Array = values.fill_null(False).to_numpy(zero_copy_only=False)
    return truths


def _write_split(folder: Path, batches: Iterator[Any], path: Path) -> None:
    outs = {name: GrowingArray(folder / f"{name}.npy", np.bool_, 0) for name in MASKS}
    try:
        for values in batches:
            words = np.array([str(word or "").strip().lower() for word in values.to_pylist()])
            for word in np.unique(words):
                if word and word not in SPLIT_NAMES:
                    raise GraphError(
                        f"{path.name} has '{word}' in the column 'split'; expected train, val, test or an empty cell."
                    )
            for name, out in outs.items():
                out.append(np.isin(words, [word for word, mask in SPLIT_NAMES.items() if mask == name]))
        for out in outs.values():
            out.settle()
    finally:
        for out in outs.values():
            out.__exit__(None, None, None)
