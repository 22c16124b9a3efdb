"""Build a graph store from files of any size, within an amount of memory, going on after a kill."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from aggbuffer.errors import BufferFileError, GraphError
from aggbuffer.files import checked_path
from aggbuffer.store.buckets import Sorted, Sorter
from aggbuffer.store.edges import find_edges
from aggbuffer.store.journal import Journal, alone_in
from aggbuffer.store.layout import FileFacts, Meta, checksums
from aggbuffer.store.nodes import FEATURES_IN, LABELS_IN, MASKS_IN, NODES_IN, NodeInputs
from aggbuffer.store.sizes import in_bytes

Say = Callable[[str], None]

_NODES = "nodes"


def build(
    source: str | Path,
    out: str | Path,
    *,
    memory: int | str = "1GiB",
    coalesce: bool = False,
    say: Say = lambda _: None,
) -> Meta:
    """Build a graph store; run again after a kill, it goes on where it was.

    Args:
        source: A folder of ``edges.parquet`` or ``edges.csv`` (columns ``source``, ``target`` and possibly ``weight``;
            nodes are counted from 0), ``features.npy`` (``[N, F]``) and, where known, ``labels.npy`` (``[N]`` or
            ``[N, L]``) and ``masks.npy`` (``[N, 3]`` bool: training, validation, test), or ``nodes.parquet`` with
            ``label`` and ``split`` in their place.
        out: The folder to make. It appears when it is complete; until then the work is in ``<out>.building``.
        memory: How much may be used at a time, beside what Python and its libraries need themselves.
        coalesce: Drop edges that are listed again instead of refusing them.
        say: Told what is going on.

    Raises:
        AggBufferError: If the inputs cannot be used, or the store not be written.

    Example:
        >>> aggbuffer.store.build("raw", "graph.store", memory="2GiB")
    """
    source, out = checked_path(source), checked_path(out)
    budget = in_bytes(memory)
    if not source.is_dir():
        raise GraphError(
            f"There is no folder {source}; expected one with {FEATURES_IN} and edges.parquet or edges.csv."
        )
    if out.exists():
        raise BufferFileError(f"{out} exists already; name another folder, or delete it first.")
    nodes, edges = NodeInputs.find(source), find_edges(source)
    inputs = [edges.path, *(source / name for name in (FEATURES_IN, LABELS_IN, MASKS_IN, NODES_IN))]
    identity = {path.name: _told(path) for path in inputs if path.is_file()}
    folder = out.with_name(f"{out.name}.building")
    try:
        with alone_in(folder):
            journal = Journal(folder, identity)
            say(f"copying the features of {len(nodes.features):,} nodes")
            nodes.copy_features(folder, budget, journal)
            if not journal.is_done(_NODES):
                nodes.copy_rest(folder, budget)
                journal.note(_NODES, done=True)
            say(f"sorting {edges.path.name} by target")
            found = Sorter(folder, edges, len(nodes.features), budget, journal).run()
            _check(found, coalesce)
            say("computing checksums")
            meta = _seal(folder, nodes, found)
            journal.remove()
            _reach_disk(folder)
            folder.rename(out)
            _reach_disk(out.parent)
    except OSError as error:
        raise BufferFileError(
            f"The store {out} cannot be built ({error.strerror or error}); mend that and run the same again, which "
            "goes on where it was."
        ) from error
    return meta


def _told(path: Path) -> list[int]:
    facts = path.stat()
    return [facts.st_size, facts.st_mtime_ns]


def _check(found: Sorted, coalesce: bool) -> None:
    if found.edges == found.self_loops:
        raise GraphError("The graph has no edge between two different nodes; there is nothing to be robust against.")
    if found.duplicates and not coalesce:
        raise GraphError(
            f"The graph has {found.duplicates:,} duplicate edges; build it again with coalesce (--coalesce) to drop "
            "them, which goes on where this has ended."
        )


def _seal(folder: Path, nodes: NodeInputs, found: Sorted) -> Meta:
    """Describe every file; what is no array of the store goes."""
    files = {}
    for path in sorted(folder.iterdir()):
        if path.suffix == ".npy":
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            files[path.name] = FileFacts(array.dtype.name, array.shape, path.stat().st_size, tuple(checksums(path)))
        elif path.is_dir():
            shutil.rmtree(path)
        elif path.name.startswith(("bucket-", "histogram")):
            path.unlink()
    meta = Meta(
        nodes=len(nodes.features),
        edges=found.edges,
        self_loops=found.self_loops,
        duplicates_dropped=found.duplicates,
        features=nodes.features.shape[1],
        undirected=found.undirected,
        files=files,
    )
    meta.write(folder)
    return meta


def _reach_disk(folder: Path) -> None:
    """Let the names in a folder survive a loss of power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
