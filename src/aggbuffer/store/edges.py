"""Edges of any number, read a batch at a time from ``edges.parquet`` or ``edges.csv``."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from aggbuffer.errors import GraphError

_ENDS = ("source", "target")
_KNOWN = (*_ENDS, "weight")
_BYTES_A_LINE = 24  # of CSV; only decides how much is read at once


@dataclass(frozen=True)
class Position:
    """Where in a file reading can go on.

    Attributes:
        row: How many edges come before.
        byte: Where the next line of a CSV file begins; 0 for its first.
    """

    row: int = 0
    byte: int = 0

    def to_dict(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True)
class Batch:
    """Some edges in a row.

    Attributes:
        source: ``[B]`` int64.
        target: ``[B]`` int64.
        weight: ``[B]`` float32, or None.
        after: Where the next ones begin.
    """

    source: npt.NDArray[np.int64]
    target: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float32] | None
    after: Position


class EdgeFile(Protocol):
    """A file of edges."""

    path: Path
    has_weight: bool

    def batches(self, rows: int, start: Position) -> Iterator[Batch]:
        """The edges from ``start`` on, at most about ``rows`` at a time."""


def find_edges(folder: Path) -> EdgeFile:
    """The file of edges in a folder.

    Raises:
        GraphError: If there is none, there are two, or it has other columns than those of a store.
    """
    found = [path for suffix in (".parquet", ".csv") if (path := folder / f"edges{suffix}").exists()]
    if len(found) != 1:
        what = "both" if found else "neither"
        raise GraphError(f"{folder} has {what} of edges.parquet and edges.csv; exactly one was expected.")
    return _ParquetEdges(found[0]) if found[0].suffix == ".parquet" else _CsvEdges(found[0])


class _ParquetEdges:
    def __init__(self, path: Path) -> None:
        self.path = path
        with open_parquet(path) as file:
            names = file.schema_arrow.names
            _check_columns(names, path)
            for name in _ENDS:
                kind = file.schema_arrow.field(name).type
                if "int" not in str(kind):
                    raise GraphError(f"The column '{name}' of {path.name} holds {kind}; expected whole numbers.")
        self.has_weight = "weight" in names

    def batches(self, rows: int, start: Position) -> Iterator[Batch]:
        names = list(_KNOWN if self.has_weight else _ENDS)
        with open_parquet(self.path) as file:
            begin, groups = 0, list[int]()
            for group in range(file.num_row_groups):
                count = file.metadata.row_group(group).num_rows
                if groups or begin + count > start.row:
                    groups.append(group)
                else:
                    begin += count
            skip, row = start.row - begin, start.row
            for table in file.iter_batches(rows, row_groups=groups, columns=names, use_threads=False):
                if skip >= table.num_rows:
                    skip -= table.num_rows
                    continue
                table, skip = table.slice(skip), 0
                row += table.num_rows
                source, target = (self._column(table, name, row, np.int64) for name in _ENDS)
                weight = self._column(table, "weight", row, np.float32) if self.has_weight else None
                yield Batch(source, target, weight, Position(row))

    def _column(self, table: Any, name: str, row: int, kind: type[Any]) -> npt.NDArray[Any]:
        column = table.column(name)
        if column.null_count:
            first = row - table.num_rows + 1
            raise GraphError(
                f"The column '{name}' of {self.path.name} has {column.null_count} empty cells in rows {first:,} to "
                f"{row:,}; every edge needs a value."
            )
        return np.asarray(column.to_numpy(zero_copy_only=False)).astype(kind)


class _CsvEdges:
    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            line = file.readline()
            self._begin = file.tell()
        try:
            header = next(csv.reader([line.decode("utf-8-sig")], skipinitialspace=True), [])
        except (UnicodeDecodeError, csv.Error):
            raise GraphError(f"{path.name} is not a CSV file in UTF-8; export it as one, with commas.") from None
        self._names = [name.strip() for name in header]
        _check_columns(self._names, path)
        self.has_weight = "weight" in self._names

    def batches(self, rows: int, start: Position) -> Iterator[Batch]:
        names = _KNOWN if self.has_weight else _ENDS
        dtype = np.dtype([(name, np.float32 if name == "weight" else np.int64) for name in names])
        at = [self._names.index(name) for name in names]
        row = start.row
        with self.path.open("rb") as file:
            file.seek(start.byte or self._begin)
            while block := file.read(rows * _BYTES_A_LINE):
                block += file.readline()
                if not block.strip():
                    continue
                table = self._parse(block, dtype, at, row)
                row += len(table)
                source, target = (np.ascontiguousarray(table[name]) for name in _ENDS)
                weight = np.ascontiguousarray(table["weight"]) if self.has_weight else None
                yield Batch(source, target, weight, Position(row, file.tell()))

    def _parse(self, block: bytes, dtype: np.dtype[Any], at: list[int], row: int) -> npt.NDArray[Any]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # numpy reads 1.5 as the whole number 1, and only warns
                return np.loadtxt(
                    io.BytesIO(block), dtype, delimiter=",", usecols=at, ndmin=1, quotechar='"', comments=None
                )
        except (ValueError, DeprecationWarning, UnicodeDecodeError) as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise GraphError(
                f"{self.path.name} cannot be read after its first {row:,} edges ({reason}; rows count from there); "
                "expected whole numbers in 'source' and 'target'."
            ) from None


def _check_columns(names: list[str], path: Path) -> None:
    for name in _ENDS:
        if name not in names:
            raise GraphError(
                f"{path.name} has no column '{name}': it has {', '.join(names) or 'none'}; name the ends of an edge "
                "'source' and 'target'."
            )
    if others := [name for name in names if name not in _KNOWN]:
        raise GraphError(
            f"{path.name} has a column '{others[0]}', which a store cannot keep; expected source, target and, if "
            "edges have one, weight."
        )


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """A Parquet file; inside, what pyarrow reads comes out of memory that is asked for as it is needed.

    Raises:
        GraphError: If it is damaged, also if that shows only later, or pyarrow is missing.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise GraphError(
            f"Reading {path.name} needs pyarrow, which is not installed; run pip install 'aggbuffer[tables]'."
        ) from None
    before = pyarrow.default_memory_pool()
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())  # the usual pool reserves a gigabyte to begin with
    try:
        with parquet.ParquetFile(path, memory_map=True) as file:
            yield file
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise GraphError(f"{path.name} is damaged or no Parquet file ({reason}); write it anew.") from None
    finally:
        pyarrow.set_memory_pool(before)
