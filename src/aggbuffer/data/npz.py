"""Graphs in NumPy archives: plain arrays, or the sparse layout of the Amazon and Coauthor files."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from aggbuffer.data.assemble import KNOWN, NAMES, assemble
from aggbuffer.data.edges import dense_from_csr, from_csr, undirected
from aggbuffer.data.splits import MASKS
from aggbuffer.errors import GraphError

if TYPE_CHECKING:
    from torch_geometric.data import Data

ADJACENCY = ("adj_indptr", "adj_indices")
ATTRIBUTES = ("attr_indptr", "attr_indices", "attr_data", "attr_shape")


def read_npz(path: Path, split: int = 0) -> Data:
    """Read a graph from an ``.npz`` archive, never unpickling.

    Args:
        path: an archive of ``x``, ``edge_index``, optionally ``y``, ``edge_weight``, ``edge_attr`` and masks
            (or their other names), or of ``adj_*``, ``attr_*`` (or ``attr_matrix``) and ``labels``.
        split: which split to take from masks that hold several.

    Returns:
        The graph. One in the sparse layout is made undirected and free of self-loops, because files in
        that layout store many edges in one direction only.

    Raises:
        GraphError: if the archive is damaged, holds pickled objects, or lacks something.
    """
    with open_npz(path) as archive:
        names = set(archive.files)
        if set(ADJACENCY) <= names:
            return _sparse_layout(archive, path, split)
        return assemble(tensors(archive, path, [n for n in archive.files if n in KNOWN]), split, path.name)


def open_npz(path: Path) -> np.lib.npyio.NpzFile:
    """Open an archive for reading; the caller closes it."""
    if not zipfile.is_zipfile(path):
        raise GraphError(f"{path} is not an .npz archive, or it is cut short; write it anew with numpy.savez.")
    archive = np.load(path, allow_pickle=False)
    assert isinstance(archive, np.lib.npyio.NpzFile)
    return archive


def tensors(archive: np.lib.npyio.NpzFile, path: Path, names: Iterable[str]) -> dict[str, Tensor]:
    """Read the named arrays as tensors of the same shape and type."""
    return {name: _array(archive, path, name) for name in names}


def _array(archive: np.lib.npyio.NpzFile, path: Path, name: str) -> Tensor:
    try:
        array: npt.NDArray[Any] = archive[name]
    except KeyError:
        found = ", ".join(f"'{key}'" for key in archive.files)
        raise GraphError(f"{path.name} has no array '{name}'; it holds {found}.") from None
    except ValueError:
        # NumPy's word for an object array, which would have to be unpickled.
        raise GraphError(
            f"'{name}' in {path.name} is a pickled Python object, which is refused because unpickling runs "
            f"code; store it as an array of numbers."
        ) from None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise GraphError(f"'{name}' in {path.name} is damaged ({error}); write the file anew.") from None
    try:
        return torch.from_numpy(array)
    except TypeError:
        raise GraphError(f"'{name}' in {path.name} holds {array.dtype} values; numbers were expected.") from None


def _sparse_layout(archive: np.lib.npyio.NpzFile, path: Path, split: int) -> Data:
    names = set(archive.files)
    items = tensors(archive, path, [n for field in ("y", *MASKS) for n in NAMES[field] if n in names])
    if "attr_matrix" in names:
        items["x"] = _array(archive, path, "attr_matrix")
    else:
        indptr, indices, values, shape = tensors(archive, path, ATTRIBUTES).values()
        items["x"] = dense_from_csr(indptr, indices, values, int(shape[1]))
    items["edges"] = undirected(from_csr(*tensors(archive, path, ADJACENCY).values()), len(items["x"]))
    return assemble(items, split, path.name)
