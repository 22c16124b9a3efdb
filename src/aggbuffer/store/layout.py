"""What a graph store on disk consists of: plain ``.npy`` arrays, and one file of JSON that says what they must be.

| file | holds |
|---|---|
| ``pointer.npy`` | ``[N + 1]`` int64: where each node's incoming edges begin in the following |
| ``column.npy`` | ``[E]`` int32 or int64: their sources, ascending for each target |
| ``weight.npy`` | ``[E]`` float32, where edges have weights |
| ``degree.npy`` | ``[N]`` float32: in-degree without self-loops |
| ``features.npy`` | ``[N, F]`` float32, a row a node |
| ``labels.npy`` | ``[N]`` int64 or float32, or ``[N, L]`` float32, where there are labels |
| ``train_mask.npy`` and so on | ``[N]`` bool, where there are masks |
| ``meta.json`` | format, counts, and size, type and checksums of every file |
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aggbuffer.errors import GraphError
from aggbuffer.files import write_bytes

FORMAT = "aggbuffer-store-1"
META = "meta.json"
POINTER, COLUMN, WEIGHT, DEGREE = "pointer.npy", "column.npy", "weight.npy", "degree.npy"
FEATURES, LABELS = "features.npy", "labels.npy"
BLOCK = 1 << 24  # bytes that share a checksum

_HEADER = 128  # bytes before the numbers of a .npy file, as numpy itself pads it


@dataclass(frozen=True)
class FileFacts:
    """What a file of a store must be.

    Attributes:
        dtype: Of its entries, as numpy names it.
        shape: Of the array.
        bytes: Size of the file.
        crc32: Of every block of 16 MiB.
    """

    dtype: str
    shape: tuple[int, ...]
    bytes: int
    crc32: tuple[int, ...]


@dataclass(frozen=True)
class Meta:
    """What ``meta.json`` says.

    Attributes:
        nodes: N.
        edges: E, self-loops counted.
        self_loops: How many of them lead from a node to itself.
        duplicates_dropped: How many edges were listed again and left out.
        features: F.
        undirected: Whether every edge but self-loops has its reverse.
        files: By name.
    """

    nodes: int
    edges: int
    self_loops: int
    duplicates_dropped: int
    features: int
    undirected: bool
    files: dict[str, FileFacts]

    def write(self, folder: Path) -> None:
        """Write ``meta.json`` in one step."""
        content = json.dumps({"format": FORMAT, **asdict(self)}, indent=1)
        write_bytes(f"{content}\n".encode(), folder / META)

    @classmethod
    def read(cls, folder: Path) -> Meta:
        """Read it, and compare the sizes of the files, which costs next to nothing.

        Raises:
            GraphError: If the folder is no store, one of another format, or has lost something.
        """
        if not (folder / META).is_file():
            raise GraphError(f"{folder} is no graph store: it has no {META}; make one with aggbuffer store build.")
        try:
            content: dict[str, Any] = json.loads((folder / META).read_text(encoding="utf-8"))
            found = content.pop("format")
        except (ValueError, KeyError, AttributeError):
            raise GraphError(f"{folder / META} is damaged or of another kind; build the store anew.") from None
        if found != FORMAT:
            raise GraphError(f"The store {folder} has the format {found!r}, but this version reads {FORMAT!r}.")
        try:
            files = {
                name: FileFacts(f["dtype"], tuple(f["shape"]), f["bytes"], tuple(f["crc32"]))
                for name, f in content.pop("files").items()
            }
            meta = cls(**content, files=files)
        except (KeyError, TypeError, AttributeError):
            raise GraphError(f"{folder / META} is damaged or of another kind; build the store anew.") from None
        for name, facts in files.items():
            size = (folder / name).stat().st_size if (folder / name).is_file() else None
            if size is None:
                raise GraphError(f"The store {folder} has lost {name}; build it anew.")
            if size != facts.bytes:
                raise GraphError(
                    f"{name} in the store {folder} has {size:,} bytes instead of {facts.bytes:,}; build it anew."
                )
        return meta


def checksums(path: Path) -> Iterator[int]:
    """CRC-32 of every block of a file."""
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            yield zlib.crc32(block)


def npy_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """The first 128 bytes of a ``.npy`` file in format 1.0, of the same length for every shape."""
    told = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    length = _HEADER - 10
    return b"\x93NUMPY\x01\x00" + length.to_bytes(2, "little") + told.ljust(length - 1).encode() + b"\n"
