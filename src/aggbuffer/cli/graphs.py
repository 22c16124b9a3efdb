"""Graphs written so that ``--graph`` reads them back."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from torch import Tensor
from torch_geometric.data import Data

from aggbuffer.files import write_bytes


def write_graph(path: Path, data: Data) -> None:
    """Write a graph's tensors as an ``.npz`` archive of plain arrays: nothing in it can run code when it is read."""
    arrays = {name: value.cpu().numpy() for name, value in data.to_dict().items() if isinstance(value, Tensor)}
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **arrays)
    write_bytes(content.getvalue(), path)
