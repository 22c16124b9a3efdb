"""Download a benchmark graph from where it was published.

Addresses are not written here: they are the ones that PyG's dataset classes and the ``ogb`` package hold. The
classes themselves do not download, because they neither limit the time, nor verify what arrives, nor write
atomically.
"""

from __future__ import annotations

import csv
import http.client
import importlib.util
import socket
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from aggbuffer.data.archives import unpack
from aggbuffer.data.catalogue import Benchmark
from aggbuffer.data.storage import CHUNK, chunks_of, write_checked
from aggbuffer.errors import DataUnavailableError

TIMEOUT = 10.0  # seconds without an answer
Report = Callable[[str], None]


def from_host(benchmark: Benchmark, folder: Path, report: Report) -> None:
    """Put the graph's files below ``folder``, each verified if its hash is known; those there are kept.

    Raises:
        DataUnavailableError: saying in a clause why it did not work.
    """
    try:
        if benchmark.loader in ("ogb", "reddit"):
            _from_archive(benchmark, folder, report)
        elif benchmark.loader == "saint":
            _from_drive(benchmark, folder, report)
        else:
            _file_by_file(benchmark, folder, report)
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", None) or error or type(error).__name__
        raise DataUnavailableError(f"the original host could not be read ({reason})") from None


def _file_by_file(benchmark: Benchmark, folder: Path, report: Report) -> None:
    for file, expected in benchmark.files.items():
        if not (folder / file).is_file():
            address = _address(benchmark, PurePosixPath(file).name)
            write_checked(folder / file, _download(address, f"{benchmark.name}: {file}", report), expected)


def _address(benchmark: Benchmark, file: str) -> str:
    from torch_geometric import datasets

    if benchmark.loader == "actor":
        part = "splits" if file.endswith(".npz") else "new_data/film"
        return f"{datasets.Actor.url}/{part}/{file}"
    base = {
        "Cora": datasets.Planetoid,
        "CiteSeer": datasets.Planetoid,
        "PubMed": datasets.Planetoid,
        "WikiCS": datasets.WikiCS,
        "Photo": datasets.Amazon,
        "Computers": datasets.Amazon,
        "CS": datasets.Coauthor,
        "Physics": datasets.Coauthor,
        # PyG has no class for the filtered graphs, but they lie beside those of this one.
        "Squirrel": datasets.HeterophilousGraphDataset,
        "Chameleon": datasets.HeterophilousGraphDataset,
    }[benchmark.name]
    return f"{base.url.rstrip('/')}/{file}"


def _from_archive(benchmark: Benchmark, folder: Path, report: Report) -> None:
    if benchmark.loader == "ogb":
        address = _ogb_address(benchmark.name)
    else:
        from torch_geometric.datasets import Reddit

        address = Reddit.url
    with tempfile.TemporaryDirectory() as temporary:
        archive = Path(temporary) / "archive.zip"
        write_checked(archive, _download(address, benchmark.name, report), None)
        unpack(archive, benchmark.files, folder)


def _ogb_address(name: str) -> str:
    # Found, not imported: importing ogb asks the network for updates, and its loader unpickles what it cached.
    spec = importlib.util.find_spec("ogb")
    if spec is None or not spec.submodule_search_locations:
        raise DataUnavailableError(
            "the original host is known to the package ogb, which is not installed: pip install 'aggbuffer[ogb]'"
        )
    table = Path(spec.submodule_search_locations[0]) / "nodeproppred" / "master.csv"
    with table.open(newline="", encoding="utf-8") as file:
        rows = {row[""]: row for row in csv.DictReader(file)}
    return rows["url"][name]


def _from_drive(benchmark: Benchmark, folder: Path, report: Report) -> None:
    from torch_geometric.data import download_google_url
    from torch_geometric.datasets import Flickr

    identifiers = (Flickr.adj_full_id, Flickr.feats_id, Flickr.class_map_id, Flickr.role_id)
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    try:
        with tempfile.TemporaryDirectory() as temporary:
            for identifier, (file, expected) in zip(identifiers, benchmark.files.items(), strict=True):
                report(f"{benchmark.name}: {file}")
                path = download_google_url(identifier, temporary, PurePosixPath(file).name, log=False)
                write_checked(folder / file, chunks_of(Path(path)), expected)
    finally:
        socket.setdefaulttimeout(before)


def _download(address: str, label: str, report: Report) -> Iterator[bytes]:
    report(f"{label} …")
    with urllib.request.urlopen(address, timeout=TIMEOUT) as response:
        promised = response.headers.get("Content-Length")
        received, told = 0, 0
        while chunk := response.read(CHUNK):
            received += len(chunk)
            yield chunk
            if received - told >= 64 * CHUNK:
                told = received
                report(f"{label}: {received / 1e6:,.0f} MB")
        if promised is not None and received < int(promised):
            raise ConnectionError(f"{label} ended after {received:,} of {int(promised):,} bytes")
