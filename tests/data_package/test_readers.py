"""Readers of graphs whose files are not at hand, on files of the same layout with three nodes."""

import gzip
import io
import json
import pickle

import numpy as np
import pytest
import torch

from aggbuffer.data.planetoid import read_planetoid
from aggbuffer.data.readers import READERS
from aggbuffer.errors import DataUnavailableError

BOTH_WAYS = [[0, 1, 1, 2], [1, 0, 2, 1]]


@pytest.fixture
def raw(tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    return folder


def test_wikics(raw, tmp_path):
    content = {"features": [[0.5], [1.0], [2.0]], "labels": [0, 1, 1], "links": [[1, 0], [0, 2], []]}
    (raw / "data.json").write_text(json.dumps(content))
    items = READERS["wikics"](tmp_path)
    assert items["edge_index"].tolist() == BOTH_WAYS
    assert items["x"].tolist() == [[0.5], [1], [2]]


def test_actor(raw, tmp_path):
    rows = ["node_id\tfeature\tlabel", "0\t1,3\t2", "2\t0\t1", "1\t2\t0"]
    (raw / "out1_node_feature_label.txt").write_text("\n".join(rows) + "\n")
    (raw / "out1_graph_edges.txt").write_text("node_id\tnode_id\n1\t0\n2\t1\n1\t2\n2\t2\n")
    for split in range(10):
        masks = {
            f"{m}_mask": np.array([m == "train", m == "val", m == "test"], float) for m in ("train", "val", "test")
        }
        np.savez(raw / f"film_split_0.6_0.2_{split}.npz", **masks)
    items = READERS["actor"](tmp_path)
    assert items["x"].tolist() == [[0, 1, 0, 1], [0, 0, 1, 0], [1, 0, 0, 0]]
    assert items["y"].tolist() == [2, 0, 1]
    assert items["edge_index"].tolist() == BOTH_WAYS
    assert items["val_mask"].shape == (10, 3)
    assert items["val_mask"][7].tolist() == [False, True, False]


def test_ogb(raw, tmp_path):
    tables = {
        "raw/edge.csv.gz": "1,0\n2,1\n",
        "raw/node-feat.csv.gz": "1,5\n2,6\n3,7\n",
        "raw/node-label.csv.gz": "4\n0\n1\n",
        "split/time/train.csv.gz": "2\n",
        "split/time/valid.csv.gz": "0\n",
        "split/time/test.csv.gz": "1\n",
    }
    (tmp_path / "split" / "time").mkdir(parents=True)
    for name, text in tables.items():
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    items = READERS["ogb"](tmp_path)
    assert items["edge_index"].tolist() == BOTH_WAYS
    torch.testing.assert_close(items["x"].mean(0), torch.zeros(2))
    torch.testing.assert_close(items["x"].square().mean(0), torch.ones(2))
    assert items["y"].tolist() == [4, 0, 1]
    assert items["train_mask"].tolist() == [False, False, True]


def test_flickr(raw, tmp_path):
    np.savez(raw / "adj_full.npz", data=np.ones(4), indices=[1, 0, 2, 1], indptr=[0, 1, 3, 4], shape=[3, 3])
    np.save(raw / "feats.npy", np.array([[1.0], [2.0], [3.0]]))
    (raw / "class_map.json").write_text('{"1": 5, "0": 6, "2": 0}')
    (raw / "role.json").write_text('{"tr": [0], "va": [2], "te": [1]}')
    items = READERS["saint"](tmp_path)
    assert items["edge_index"].tolist() == BOTH_WAYS
    assert items["x"].dtype == torch.float32
    assert items["y"].tolist() == [6, 5, 0]
    assert items["val_mask"].tolist() == [False, False, True]


def test_reddit(raw, tmp_path):
    np.savez(raw / "reddit_data.npz", feature=np.ones((3, 2)), label=[3, 1, 0], node_types=[1, 3, 2])
    np.savez(raw / "reddit_graph.npz", row=BOTH_WAYS[0], col=BOTH_WAYS[1], data=np.ones(4), format=b"coo")
    items = READERS["reddit"](tmp_path)
    assert items["edge_index"].tolist() == BOTH_WAYS
    assert items["test_mask"].tolist() == [False, True, False]


def test_the_planetoid_reader_runs_no_code(raw, tmp_path):
    for name in ("allx", "ally", "tx", "ty", "graph"):
        (raw / f"ind.cora.{name}").write_bytes(pickle.dumps(io.open, protocol=2))
    (raw / "ind.cora.test.index").write_text("1\n0\n")
    with pytest.raises(DataUnavailableError, match=r"not a Planetoid file \(it names io\.open"):
        read_planetoid(tmp_path)


def test_cora_as_text(raw, tmp_path):
    rest = "\t".join("01" + "0" * 2)
    (raw / "cora.content").write_text(f"p9\t{rest}\tTheory\np1\t1\t1\t0\t0\tRule_Learning\n")
    (raw / "cora.cites").write_text("p1\tp9\np9\tp1\np1\tp1\n")
    items = read_planetoid(tmp_path)
    assert items["x"].tolist() == [[0, 1, 0, 0], [0.5, 0.5, 0, 0]]
    assert items["y"].tolist() == [0, 6]
    assert items["edge_index"].tolist() == [[0, 1], [1, 0]]
