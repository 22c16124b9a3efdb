"""Arrays on disk that grow at their end, and can be cut back to where a journal knows that they were whole."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from aggbuffer.store.layout import npy_header

Array = npt.NDArray[Any]


class GrowingArray:
    """A ``.npy`` file that is written from its start to its end.

    Plain writes, not a memory map: on a full disk a map ends the process, a write says why it failed.
    """

    def __init__(self, path: Path, dtype: npt.DTypeLike, rows: int, row: tuple[int, ...] = ()) -> None:
        """Open the file, keeping its first ``rows`` rows.

        Args:
            path: Where.
            dtype: Of the entries.
            rows: How many rows an earlier run is known to have written.
            row: Shape of one row.
        """
        self.dtype, self.rows, self.row = np.dtype(dtype), rows, row
        if not rows:
            path.write_bytes(npy_header(self.dtype.str, (0, *row)))
        self._file = path.open("r+b")
        self._file.truncate(self._end())
        self._file.seek(0, os.SEEK_END)

    def __enter__(self) -> GrowingArray:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def append(self, values: Array) -> None:
        """Add rows."""
        content = np.ascontiguousarray(values, dtype=self.dtype)
        self._file.write(content.data.cast("B") if content.size else b"")
        self.rows += len(content)

    def settle(self) -> None:
        """Let the header tell the rows so far, and all of it reach the disk."""
        self._file.seek(0)
        self._file.write(npy_header(self.dtype.str, (self.rows, *self.row)))
        self._file.seek(0, os.SEEK_END)
        self._file.flush()
        os.fsync(self._file.fileno())

    def _end(self) -> int:
        header = len(npy_header(self.dtype.str, (0, *self.row)))
        return header + self.rows * self.dtype.itemsize * int(np.prod(self.row, dtype=np.int64))
