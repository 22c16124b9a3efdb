"""A store holds exactly the graph of its files, whatever their size, and says in a sentence what it cannot hold."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import torch
from pyarrow import parquet
from store_inputs import Inputs, write_csv, write_inputs

from aggbuffer import AggBufferError, store
from aggbuffer.store import GraphStore

SMALL = "1MiB"  # with which a batch has 8,192 edges and a bucket some 20,000


def check_holds(built: GraphStore, inputs: Inputs) -> None:
    """Everything in a store is what a plain sort in memory gives."""
    count, order = len(inputs.x), inputs.order
    source, target = inputs.source, inputs.target
    assert (built.num_nodes, built.num_edges, built.num_features) == (count, len(source), inputs.x.shape[1])
    assert np.array_equal(built.column.numpy(), source[order])
    assert np.array_equal(built.pointer.diff().numpy(), np.bincount(target, minlength=count))
    assert np.array_equal(built.degree.numpy(), np.bincount(target[source != target], minlength=count))
    if inputs.weight is None:
        assert built.weight is None
    else:
        assert built.weight is not None
        assert np.array_equal(built.weight.numpy(), inputs.weight[order])
    every = torch.arange(count)
    assert np.array_equal(built.features(every).numpy(), inputs.x)
    assert built.y is not None
    assert np.array_equal(built.y.numpy(), inputs.y)
    for column, name in enumerate(("train_mask", "val_mask", "test_mask")):
        mask = built.get(name)
        assert mask is not None
        assert np.array_equal(mask.numpy(), inputs.masks[:, column])


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_store_holds_the_graph_of_its_files(tmp_path: Path, kind: str, weighted: bool) -> None:
    inputs = write_inputs(tmp_path / "raw", kind=kind, weighted=weighted, undirected=not weighted)
    meta = store.build(inputs.folder, tmp_path / "store", memory=SMALL)
    assert meta.undirected is not weighted
    assert meta.self_loops == (inputs.source == inputs.target).sum() > 0
    check_holds(store.check(tmp_path / "store"), inputs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["raw", "store"]


@pytest.mark.parametrize("weighted", [False, True])
def test_many_buckets_and_uneven_degrees_give_the_same(tmp_path: Path, weighted: bool) -> None:
    inputs = write_inputs(tmp_path / "raw", nodes=30_000, edges=70_000, weighted=weighted, hub=True)
    told: list[str] = []
    store.build(inputs.folder, tmp_path / "store", memory="4MiB", say=told.append)
    check_holds(store.open(tmp_path / "store"), inputs)
    assert told


def test_nodes_beyond_the_bins_of_the_histogram(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aggbuffer.store.buckets._MOST_BINS", 64)
    inputs = write_inputs(tmp_path / "raw", nodes=30_001, edges=70_000)
    store.build(inputs.folder, tmp_path / "store", memory=SMALL)
    check_holds(store.open(tmp_path / "store"), inputs)


def test_one_edge_without_its_reverse_makes_a_graph_directed(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path / "raw")
    at = int((inputs.source != inputs.target).argmax())
    columns = {"source": np.delete(inputs.source, at), "target": np.delete(inputs.target, at)}
    parquet.write_table(pyarrow.table(columns), inputs.folder / "edges.parquet")
    assert store.build(inputs.folder, tmp_path / "store").undirected is False


def test_duplicates_are_refused_with_their_number_and_dropped_on_request(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path / "raw", weighted=True)
    assert inputs.weight is not None
    columns = {
        "source": np.concatenate([inputs.source, inputs.source[:17]]),
        "target": np.concatenate([inputs.target, inputs.target[:17]]),
        "weight": np.concatenate([inputs.weight, inputs.weight[:17] + 1]),  # the weight read first is the one to keep
    }
    parquet.write_table(pyarrow.table(columns), inputs.folder / "edges.parquet")
    with pytest.raises(AggBufferError, match=r"has 17 duplicate edges.*coalesce"):
        store.build(inputs.folder, tmp_path / "store", memory=SMALL)
    assert not (tmp_path / "store").exists()
    assert store.build(inputs.folder, tmp_path / "store", memory=SMALL, coalesce=True).duplicates_dropped == 17
    check_holds(store.check(tmp_path / "store"), inputs)


def test_labels_and_split_from_a_table(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path / "raw")
    words = np.array(["train", "Valid", "test"])[inputs.masks.argmax(1)]
    words[3] = ""
    inputs.masks[3] = False
    parquet.write_table(pyarrow.table({"label": inputs.y, "split": words}), inputs.folder / "nodes.parquet")
    (inputs.folder / "labels.npy").unlink()
    (inputs.folder / "masks.npy").unlink()
    store.build(inputs.folder, tmp_path / "store", memory=SMALL)
    check_holds(store.check(tmp_path / "store"), inputs)


@pytest.mark.parametrize("kind", ["parquet", pytest.param("csv", marks=pytest.mark.slow)])
def test_a_build_that_is_killed_again_and_again_comes_to_the_same_end(tmp_path: Path, kind: str) -> None:
    inputs = write_inputs(tmp_path / "raw", nodes=20_000, edges=60_000, kind=kind)
    script = [sys.executable, str(Path(__file__).with_name("store_inputs.py")), str(inputs.folder), str(tmp_path / "s")]
    done = subprocess.run(
        script, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    kills, *stages = done.stdout.split()
    assert int(kills) >= 5
    assert stages == ["count", "features", "nodes", "sort", "spread"]  # something of each was interrupted
    check_holds(store.check(tmp_path / "s"), inputs)


def test_other_inputs_do_not_go_on_where_the_first_ended(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path / "raw")
    x = inputs.x.copy()
    x[-1, 0] = np.nan
    np.save(inputs.folder / "features.npy", x)
    with pytest.raises(AggBufferError, match=r"NaN.*row 499, column 0"):
        store.build(inputs.folder, tmp_path / "store")
    other = write_inputs(tmp_path / "raw", seed=1)
    store.build(other.folder, tmp_path / "store")
    check_holds(store.check(tmp_path / "store"), other)


def test_a_node_with_too_many_edges_for_the_memory_asks_for_more_and_goes_on(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path / "raw", nodes=60_000, edges=120_000, hub=True)
    with pytest.raises(AggBufferError, match=r"node 20000 has .* incoming edges.*give memory"):
        store.build(inputs.folder, tmp_path / "store", memory=SMALL)
    store.build(inputs.folder, tmp_path / "store", memory="8MiB")
    check_holds(store.open(tmp_path / "store"), inputs)


def edges(folder: Path, source: list[object], target: list[object], **more: list[object]) -> None:
    parquet.write_table(pyarrow.table({"source": source, "target": target, **more}), folder / "edges.parquet")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


SPOILS = {
    "features.npy is cut short": lambda f: cut(f / "features.npy"),
    "features.npy.*write it anew": lambda f: (f / "features.npy").write_bytes(b"\x93NUMPY nonsense"),
    "has no features.npy": lambda f: (f / "features.npy").unlink(),
    "features.npy has shape": lambda f: np.save(f / "features.npy", np.zeros(500)),
    "features.npy holds <U1 values": lambda f: np.save(f / "features.npy", np.full((500, 2), "x")),
    "labels.npy has shape": lambda f: np.save(f / "labels.npy", np.zeros(499)),
    "masks.npy has shape": lambda f: np.save(f / "masks.npy", np.zeros((500, 2), bool)),
    "edges.parquet is damaged": lambda f: cut(f / "edges.parquet"),
    "neither of edges.parquet and edges.csv": lambda f: (f / "edges.parquet").unlink(),
    "both of edges.parquet and edges.csv": lambda f: write_csv(f / "edges.csv", {"source": [0], "target": [1]}),
    "Row 2 of edges.parquet names the node 500 as a target": lambda f: edges(f, [0, 1], [1, 500]),
    "Row 1 of edges.parquet names the node -1 as a source": lambda f: edges(f, [-1, 1], [1, 2]),
    "'source' of edges.parquet holds double": lambda f: edges(f, [0.5], [1]),
    "'source' of edges.parquet has 1 empty cells": lambda f: edges(f, [0, None], [1, 2]),
    "a column 'time'": lambda f: edges(f, [0], [1], time=[3]),
    "a weight that is NaN": lambda f: edges(f, [0, 1], [1, 2], weight=[1.0, float("nan")]),
    "no edge between two different nodes": lambda f: edges(f, [0, 1], [0, 1]),
    "in nodes.parquet and in labels.npy": lambda f: parquet.write_table(
        pyarrow.table({"label": [0] * 500}), f / "nodes.parquet"
    ),
}


@pytest.mark.parametrize("words", SPOILS)
def test_bad_files_are_told_in_a_sentence_and_leave_no_store(tmp_path: Path, words: str) -> None:
    inputs = write_inputs(tmp_path / "raw")
    SPOILS[words](inputs.folder)
    with pytest.raises(AggBufferError, match=words) as caught:
        store.build(inputs.folder, tmp_path / "store")
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("source,target\n0,1\n1,x\n", "cannot be read after its first 0 edges"),
        ("source,target\n0,1\n1\n", "cannot be read"),
        ("source,target\n0,1.5\n", "cannot be read"),
        ("from,to\n0,1\n", "no column 'source': it has from, to"),
        ("", "no column 'source': it has none"),
    ],
)
def test_bad_text_is_told_in_a_sentence(tmp_path: Path, text: str, words: str) -> None:
    inputs = write_inputs(tmp_path / "raw")
    (inputs.folder / "edges.parquet").unlink()
    (inputs.folder / "edges.csv").write_text(text)
    with pytest.raises(AggBufferError, match=words):
        store.build(inputs.folder, tmp_path / "store")


def test_settings_are_checked_before_anything_is_written(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path / "raw")
    for memory in ("lots", "3 GHz", 10, True):
        with pytest.raises(AggBufferError, match="memory"):
            store.build(inputs.folder, tmp_path / "store", memory=memory)
    with pytest.raises(AggBufferError, match="exists already"):
        store.build(inputs.folder, inputs.folder)
    with pytest.raises(AggBufferError, match="There is no folder"):
        store.build(tmp_path / "nowhere", tmp_path / "store")
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


def test_a_store_that_was_spoilt_is_refused(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path / "raw")
    built = tmp_path / "store"
    store.build(inputs.folder, built)
    content = bytearray((built / "column.npy").read_bytes())
    content[-3] ^= 1
    (built / "column.npy").write_bytes(content)
    store.open(built)  # only a whole reading finds that
    with pytest.raises(AggBufferError, match=r"column.npy .* damaged in its block 0"):
        store.check(built)
    cut(built / "degree.npy")
    with pytest.raises(AggBufferError, match=r"degree.npy .* bytes instead of"):
        store.open(built)
    (built / "degree.npy").unlink()
    with pytest.raises(AggBufferError, match=r"has lost degree.npy"):
        store.open(built)
    meta = built / "meta.json"
    meta.write_text(meta.read_text().replace("aggbuffer-store-1", "aggbuffer-store-9"))
    with pytest.raises(AggBufferError, match="'aggbuffer-store-9', but this version reads 'aggbuffer-store-1'"):
        store.open(built)
    meta.write_text("{")
    with pytest.raises(AggBufferError, match="damaged or of another kind"):
        store.open(built)
    with pytest.raises(AggBufferError, match="is no graph store"):
        store.open(inputs.folder)
