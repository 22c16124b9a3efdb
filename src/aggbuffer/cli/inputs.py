"""From the paths and names on the command line to a graph and a model."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from torch import Tensor, nn
from torch_geometric.data import Data

from aggbuffer.cli.models import build_model, load_weights
from aggbuffer.data import read_graph
from aggbuffer.errors import BufferFileError, ConfigError
from aggbuffer.io import load
from aggbuffer.store import GraphStore, is_store, open


def read_inputs(
    graph: Path, model: str, weights: Path | None, *, split: int = 0, buffer: Path | None = None
) -> tuple[Data | GraphStore, nn.Module]:
    """The graph, in memory or on disk, and the model with its weights and, if a file is given, its buffers."""
    data = open(graph) if is_store(graph) else read_graph(graph, split=split)
    gnn = build_model(model, data)
    if weights is not None:
        load_weights(gnn, weights)
    like = next((p for p in gnn.parameters() if p.is_floating_point()), None)
    if like is not None and not isinstance(data, GraphStore):
        data = _as_the_model(data, like)
    return data, gnn if buffer is None else load(gnn, buffer)


def _as_the_model(data: Data, like: Tensor) -> Data:
    """The graph on the device of the model and in its precision, of which files know nothing."""
    data = data.to(like.device)
    for name in ("x", "edge_weight", "edge_attr"):
        value = data.get(name)
        if isinstance(value, Tensor) and value.is_floating_point():
            data[name] = value.to(like.dtype)
    return data


def check_writable(*paths: Path | None, inputs: tuple[Path | None, ...] = ()) -> None:
    """Find out now, not after the work, whether files can be written.

    Args:
        paths: Of the files; None stands for one that nobody asked for.
        inputs: Files that must not be overwritten by mistake.

    Raises:
        BufferFileError: If one cannot be written.
        ConfigError: If two are the same file, or one is an input.
    """
    taken = {path.resolve() for path in inputs if path is not None}
    for path in filter(None, paths):
        if path.resolve() in taken:
            raise ConfigError(f"{path} is named twice; inputs and outputs must be files of their own.")
        taken.add(path.resolve())
        if path.is_dir():
            raise BufferFileError(f"{path} is a folder; name a file in it.")
        try:
            with tempfile.NamedTemporaryFile(dir=path.parent):
                pass
        except OSError as error:
            raise BufferFileError(
                f"{path} cannot be written ({error.strerror or error}); name a file in a folder you can write to."
            ) from error


def check_folder(folder: Path, *files: Path | None) -> None:
    """Find out now, not after the work, whether a folder can be written to or made.

    Args:
        folder: That will be made when there is something to put into it.
        files: Paths that will be, or are, files.

    Raises:
        BufferFileError: If not.
        ConfigError: If the folder is one of the files.
    """
    if folder.resolve() in {path.resolve() for path in files if path is not None}:
        raise ConfigError(f"{folder} is named twice; as a folder and as a file.")
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise BufferFileError(f"{folder} cannot be a folder to write to; name another one.")


def make_folder(path: Path) -> None:
    """Make a folder for outputs, unless it is there already.

    Raises:
        BufferFileError: If that cannot be done, or it cannot be written to.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BufferFileError(f"The folder {path} cannot be made ({error.strerror or error}).") from error
    if not os.access(path, os.W_OK):
        raise BufferFileError(f"The folder {path} cannot be written to; name another one.")
