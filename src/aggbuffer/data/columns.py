"""Columns of CSV and Parquet files, and what their cells may mean."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from aggbuffer.errors import GraphError

Column = npt.NDArray[Any]  # [rows]: numbers or truth values, or Python objects where cells are text

WORDS_FOR_TRUTH = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False, "": False}


@dataclass
class Table:
    """A table whose columns are taken out as they are understood.

    Attributes:
        name: of the file, for messages.
        header: all column names.
        rows: how many.
        columns: those not yet taken.
    """

    name: str
    header: tuple[str, ...]
    rows: int
    columns: dict[str, Column]

    def take(self, name: str) -> Column | None:
        """Remove and return a column, or None if there is none."""
        return self.columns.pop(name, None)


def read_table(folder: Path, stem: str) -> Table:
    """Read ``<stem>.csv`` or ``<stem>.parquet``.

    Raises:
        GraphError: if the folder has neither or both, or the file cannot be read.
    """
    found = [path for suffix in (".csv", ".parquet") if (path := folder / f"{stem}{suffix}").exists()]
    if len(found) != 1:
        what = "both" if found else "neither"
        raise GraphError(f"{folder} has {what} of {stem}.csv and {stem}.parquet; exactly one was expected.")
    path = found[0]
    columns = _read_csv(path) if path.suffix == ".csv" else _read_parquet(path)
    rows = len(next(iter(columns.values()), ()))
    return Table(path.name, tuple(columns), rows, columns)


def _read_csv(path: Path) -> dict[str, Column]:
    try:
        # The signature that spreadsheets put before UTF-8 would become part of the first column's name.
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file, skipinitialspace=True) if row]
    except (csv.Error, UnicodeDecodeError) as error:
        raise GraphError(f"{path.name} is not a CSV file in UTF-8 ({error}); export it as one, with commas.") from None
    if not rows:
        raise GraphError(f"{path.name} is empty; its first line has to name the columns.")
    header = [name.strip() for name in rows.pop(0)]
    if len(set(header)) < len(header):
        raise GraphError(f"{path.name} has two columns of the same name; its header is {', '.join(header)}.")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(header):
            raise GraphError(
                f"Row {number} of {path.name} has {len(row)} cells, its header {len(header)}; "
                f"is the file cut short, or does a cell hold a comma without quotes?"
            )
    cells = zip(*rows, strict=True) if rows else ([] for _ in header)
    return {
        name: np.array([cell.strip() for cell in column], dtype=object)
        for name, column in zip(header, cells, strict=True)
    }


def _read_parquet(path: Path) -> dict[str, Column]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise GraphError(
            f"Reading {path.name} needs pyarrow, which is not installed; run pip install 'aggbuffer[tables]', "
            f"or store the table as CSV."
        ) from None
    try:
        table = parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise GraphError(f"{path.name} is damaged or no Parquet file ({reason}); write it anew.") from None
    return {name: table[name].to_numpy() for name in table.column_names}


def numbers(column: Column, name: str, file: str) -> npt.NDArray[np.float32]:
    """The cells as float32 ``[rows]``.

    Raises:
        GraphError: naming the first cell that is not a number.
    """
    try:
        return column.astype(np.float32)
    except (TypeError, ValueError):
        row, value = next((r, v) for r, v in enumerate(column.tolist(), start=1) if not _is_number(v))
    raise GraphError(
        f"Row {row} of {file} has {value!r} in the column '{name}', where a number was expected; "
        f"encode words as numbers and fill empty cells, or leave the column out."
    )


def _is_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def truths(column: Column, name: str, file: str) -> npt.NDArray[np.bool_]:
    """The cells as bool ``[rows]``; an empty one is false.

    Raises:
        GraphError: naming the first cell that is neither true nor false.
    """
    words = ["" if value is None else str(value).lower() for value in column.tolist()]
    for row, word in enumerate(words, start=1):
        if word not in WORDS_FOR_TRUTH:
            raise GraphError(f"Row {row} of {file} has '{word}' in the column '{name}'; true or false was expected.")
    return np.array([WORDS_FOR_TRUTH[word] for word in words], dtype=bool)


def labels(column: Column, name: str, file: str) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Class numbers from whole numbers, kept as they are, or from words, numbered alphabetically.

    Returns:
        int64 ``[rows]``, -1 where the cell is empty, and the words in the order of their numbers (none if
        the column holds whole numbers).

    Raises:
        GraphError: if the column holds fractions.
    """
    cells = [None if _is_empty(value) else value for value in column.tolist()]
    filled = [value for value in cells if value is not None]
    try:
        whole = {value: int(value) for value in filled}
    except ValueError:
        words = sorted({str(value) for value in filled})
        number = {word: index for index, word in enumerate(words)}
        return np.array([-1 if v is None else number[str(v)] for v in cells], dtype=np.int64), words
    fraction = next((v for v in filled if isinstance(v, float) and v != whole[v]), None)
    if fraction is not None:
        raise GraphError(f"{file} has {fraction} in the column '{name}'; a class is a whole number or a word.")
    return np.array([-1 if value is None else whole[value] for value in cells], dtype=np.int64), []


def _is_empty(value: object) -> bool:
    return value is None or value == "" or value != value  # NaN is how Parquet shows a missing number
