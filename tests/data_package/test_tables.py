"""Folders of two tables: CSV and Parquet say the same, and every bad cell is found by row and column."""

import sys

import pytest
import torch

from aggbuffer.data import read_graph
from aggbuffer.errors import GraphError

NODES = """id,label,split,height,width
ann,cat,train,1,0.5
bob,dog,val,2,1.5
cy,cat,test,3,2.5
"""
EDGES = """source,target,weight,year
ann,bob,0.5,2001
bob,cy,1,2002
"""


def write(folder, nodes=NODES, edges=EDGES):
    (folder / "nodes.csv").write_text(nodes, encoding="utf-8")
    (folder / "edges.csv").write_text(edges, encoding="utf-8")
    return folder


def test_csv_with_everything(tmp_path):
    data = read_graph(write(tmp_path))
    assert data.x.tolist() == [[1, 0.5], [2, 1.5], [3, 2.5]]
    assert data.x.dtype == torch.float32
    assert data.edge_index.tolist() == [[0, 1], [1, 2]]
    assert data.edge_weight.tolist() == [0.5, 1]
    assert data.edge_attr.tolist() == [[2001], [2002]]
    assert data.y.tolist() == [0, 1, 0]
    assert data.label_names == ["cat", "dog"]
    assert data.train_mask.tolist() == [True, False, False]
    assert data.val_mask.tolist() == [False, True, False]
    assert data.test_mask.tolist() == [False, False, True]


def test_parquet_reads_as_csv_does(tmp_path):
    csv = pytest.importorskip("pyarrow.csv", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = write(tmp_path)
    expected = read_graph(folder)
    for stem in ("nodes", "edges"):
        parquet.write_table(csv.read_csv(folder / f"{stem}.csv"), folder / f"{stem}.parquet")
        (folder / f"{stem}.csv").unlink()
    read = read_graph(folder)
    assert sorted(read.keys()) == sorted(expected.keys())
    for name, value in expected.items():
        assert torch.equal(read[name], value) if isinstance(value, torch.Tensor) else read[name] == value


def test_parquet_types(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    nodes = {"id": [10, 20], "y": [1, None], "train_mask": [True, None], "wet": [True, False]}
    parquet.write_table(pyarrow.table(nodes), tmp_path / "nodes.parquet")
    parquet.write_table(pyarrow.table({"source": [20], "target": [10]}), tmp_path / "edges.parquet")
    data = read_graph(tmp_path)
    assert data.edge_index.tolist() == [[1], [0]]
    assert data.y.tolist() == [1, -1]
    assert data.train_mask.tolist() == [True, False]
    assert data.x.tolist() == [[1], [0]]


def test_csv_with_the_least(tmp_path):
    data = read_graph(write(tmp_path, "\ufeffa, b\n1, 2\n3, 4\n", "source, target\n0, 1\n"))
    assert sorted(data.keys()) == ["edge_index", "x"]
    assert data.edge_index.tolist() == [[0], [1]]


def test_no_edges_and_no_nodes(tmp_path):
    data = read_graph(write(tmp_path, "a\n", "source,target\n"))
    assert data.x.shape == (0, 1)
    assert data.edge_index.shape == (2, 0)


def test_labels_and_masks_in_columns(tmp_path):
    nodes = "y,a,train_mask,val_mask,test_mask\n2,1,true,0,FALSE\n,1,false,1,False\n0,1,,0,True\n"
    data = read_graph(write(tmp_path, nodes, "source,target\n0,1\n"))
    assert data.y.tolist() == [2, -1, 0]
    assert "label_names" not in data
    assert data.train_mask.tolist() == [True, False, False]
    assert data.test_mask.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        ("", EDGES, "nodes.csv is empty"),
        ("id,label\na,1\n", EDGES, "no feature column"),
        ("id,a,a\nx,1,2\n", EDGES, "two columns of the same name"),
        ("id,a\nx,1\nx,2\n", EDGES, "two rows with id 'x'"),
        ("a,label,y\n1,2,3\n", EDGES, "both a column 'label' and a column 'y'"),
        ("a,b\n1\n", EDGES, "Row 1 of nodes.csv has 1 cells, its header 2"),
        ("a,b\n1,2\n3,red\n", EDGES, "Row 2 of nodes.csv has 'red' in the column 'b'"),
        ("a,b\n1,\n", EDGES, "Row 1 of nodes.csv has '' in the column 'b'"),
        ("a,split\n1,holdout\n", EDGES, "'holdout' in the column 'split'"),
        ("a,train_mask\n1,maybe\n", EDGES, "'maybe' in the column 'train_mask'"),
        ("a,split,val_mask\n1,train,0\n", EDGES, "'split' and a column 'val_mask'"),
        (NODES, "from,to\nann,bob\n", "no column 'source': it has from, to"),
        (NODES, "source,target\nann,zoe\n", "'zoe' as a target, which is none of the ids in nodes.csv"),
        ("a\n1\n", "source,target\n0,1\n", "'1' as a target, which is no row of nodes.csv; rows count from 0"),
        (NODES, "source,target,weight\nann,bob,heavy\n", "'heavy' in the column 'weight'"),
        (NODES, "source,target,kind\nann,bob,friend\n", "'friend' in the column 'kind'"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, nodes, edges, message):
    with pytest.raises(GraphError, match=message) as caught:
        read_graph(write(tmp_path, nodes, edges))
    assert "\n" not in str(caught.value)


def test_missing_doubled_and_foreign_tables(tmp_path):
    with pytest.raises(GraphError, match=r"neither of nodes\.csv and nodes\.parquet"):
        read_graph(tmp_path)
    write(tmp_path)
    (tmp_path / "edges.csv").write_bytes(b"\xff\xfe\x00s")
    with pytest.raises(GraphError, match="not a CSV file in UTF-8"):
        read_graph(tmp_path)
    (tmp_path / "edges.parquet").write_bytes(b"PAR1")
    with pytest.raises(GraphError, match="both of edges"):
        read_graph(tmp_path)


def test_damaged_parquet_and_fractional_labels(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "edges.csv").write_text(EDGES)
    (tmp_path / "nodes.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(GraphError, match=r"nodes\.parquet is damaged"):
        read_graph(tmp_path)
    parquet.write_table(pyarrow.table({"y": [0.5, 1.0], "a": [1, 2]}), tmp_path / "nodes.parquet")
    with pytest.raises(GraphError, match=r"has 0\.5 in the column 'y'"):
        read_graph(tmp_path)


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "nodes.parquet").write_bytes(b"PAR1")
    (tmp_path / "edges.csv").write_text(EDGES)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(GraphError, match=r"aggbuffer\[tables\]"):
        read_graph(tmp_path)
