"""`.pt` and `.npz` files: what is read, and what is said about what cannot be read."""

import pickle
import warnings

import numpy as np
import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData, InMemoryDataset
from torch_geometric.utils import to_torch_csr_tensor

from aggbuffer.data import read_graph
from aggbuffer.errors import GraphError
from aggbuffer.graph import Graph


@pytest.fixture
def graph():
    return Data(
        x=torch.arange(8.0).view(4, 2),
        edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]),
        y=torch.tensor([0, 1, 0, 1]),
        train_mask=torch.tensor([True, False, False, False]),
    )


def assert_same(read, graph):
    for name in ("x", "edge_index", "y", "train_mask"):
        assert torch.equal(read[name], graph[name])


def test_pt_of_a_data_keeps_other_fields(tmp_path, graph):
    graph.pos = torch.ones(4, 3)
    torch.save(graph, tmp_path / "g.pt")
    read = read_graph(str(tmp_path / "g.pt"))
    assert_same(read, graph)
    assert torch.equal(read.pos, graph.pos)


def test_pt_of_a_graph_whose_edge_attributes_pyg_has_looked_up(tmp_path, graph):
    """As many of its transforms do, and whoever asks."""
    assert graph.is_edge_attr("edge_index")
    torch.save(graph, tmp_path / "g.pt")
    with pytest.raises(GraphError, match=r"torch.save\(Data\(\*\*data.to_dict\(\)\), path\)"):
        read_graph(tmp_path / "g.pt")
    torch.save(Data(**graph.to_dict()), tmp_path / "g.pt")
    assert_same(read_graph(tmp_path / "g.pt"), graph)


def test_asking_for_a_part_of_a_graph_leaves_nothing_in_it(tmp_path, graph):
    before = dict(vars(graph._store))
    Graph.of(graph).subgraph(torch.tensor([True, False, True]))
    assert dict(vars(graph._store)) == before


def test_pt_of_a_dictionary(tmp_path, graph):
    torch.save({"features": graph.x, "edges": graph.edge_index.t().contiguous(), "labels": graph.y}, tmp_path / "g.pt")
    read = read_graph(tmp_path / "g.pt")
    assert torch.equal(read.x, graph.x)
    assert torch.equal(read.edge_index, graph.edge_index)
    assert torch.equal(read.y, graph.y)


def test_pt_with_an_edge_index_object(tmp_path, graph):
    graph.edge_index = EdgeIndex(graph.edge_index, sparse_size=(4, 4), sort_order="row")
    torch.save(graph, tmp_path / "g.pt")
    assert read_graph(tmp_path / "g.pt").edge_index.tolist() == graph.edge_index.tolist()


@pytest.mark.parametrize("weights", [None, torch.tensor([0.5, 1, 2])])
def test_pt_with_a_sparse_adjacency(tmp_path, graph, weights):
    start, end = graph.edge_index
    data = Data(x=graph.x, y=graph.y, adj_t=to_torch_csr_tensor(torch.stack([end, start]), weights, size=len(graph.x)))
    torch.save(data, tmp_path / "g.pt")
    read = read_graph(tmp_path / "g.pt")
    order = (end * len(graph.x) + start).argsort()
    assert torch.equal(read.edge_index, graph.edge_index[:, order])
    assert "adj_t" not in read
    if weights is None:
        assert "edge_weight" not in read
    else:
        assert torch.equal(read.edge_weight, weights[order])
    data.edge_index = graph.edge_index
    torch.save(data, tmp_path / "g.pt")
    with pytest.raises(GraphError, match="both node pairs and 'adj_t'"):
        read_graph(tmp_path / "g.pt")


def test_pt_that_pyg_processed(tmp_path, graph):
    InMemoryDataset.save([graph], str(tmp_path / "data.pt"))
    assert_same(read_graph(tmp_path / "data.pt"), graph)
    InMemoryDataset.save([graph, graph], str(tmp_path / "two.pt"))
    with pytest.raises(GraphError, match="many graphs"):
        read_graph(tmp_path / "two.pt")


@pytest.mark.parametrize("names", [("x", "edge_index", "y"), ("node_features", "edges", "node_labels")])
def test_npz_under_either_name_and_layout(tmp_path, graph, names):
    x, edges, y = names
    pairs = graph.edge_index.numpy() if edges == "edge_index" else graph.edge_index.t().numpy()
    weight = np.array([0.5, 1, 2])
    np.savez(tmp_path / "g.npz", **{x: graph.x.numpy(), edges: pairs, y: graph.y.numpy(), "edge_weight": weight})
    read = read_graph(tmp_path / "g.npz")
    assert torch.equal(read.x, graph.x)
    assert torch.equal(read.edge_index, graph.edge_index)
    assert read.edge_index.is_contiguous()
    assert torch.equal(read.y, graph.y)
    assert read.edge_weight.tolist() == [0.5, 1, 2]


@pytest.mark.parametrize("by_row", [True, False])
def test_npz_with_several_splits(tmp_path, graph, by_row):
    masks = np.eye(4, dtype=bool)[:3]
    np.savez(
        tmp_path / "g.npz",
        x=graph.x.numpy(),
        edges=graph.edge_index.t().numpy(),
        train_masks=masks if by_row else masks.T,
    )
    for split in range(3):
        assert read_graph(tmp_path / "g.npz", split=split).train_mask.tolist() == masks[split].tolist()
    with pytest.raises(GraphError, match=r"holds 3 splits.* split 3 was asked"):
        read_graph(tmp_path / "g.npz", split=3)


@pytest.mark.parametrize("dense", [True, False])
def test_npz_in_the_sparse_layout_becomes_undirected(tmp_path, dense):
    x = np.array([[0, 2.0], [1, 0], [0, 0]], dtype=np.float32)
    sparse = {"attr_data": [2.0, 1.0], "attr_indices": [1, 0], "attr_indptr": [0, 1, 2, 2], "attr_shape": [3, 2]}
    np.savez(
        tmp_path / "g.npz",
        adj_data=np.ones(3),
        adj_indices=[1, 2, 2],
        adj_indptr=[0, 1, 2, 3],
        labels=[0, 1, 1],
        **({"attr_matrix": x} if dense else sparse),
    )
    read = read_graph(tmp_path / "g.npz")
    assert read.x.tolist() == x.tolist()
    assert read.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert read.y.tolist() == [0, 1, 1]


def refusal(path, **kwargs):
    with pytest.raises(GraphError) as caught:
        read_graph(path, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_plain_pickle_is_refused_without_a_warning(tmp_path):
    (tmp_path / "g.pt").write_bytes(pickle.dumps({"x": 1}, protocol=4))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        refusal(tmp_path / "g.pt")
    assert not caught


def test_missing_and_unknown_files(tmp_path):
    assert "There is no graph at" in refusal(tmp_path / "none.pt")
    (tmp_path / "g.txt").write_text("0 1")
    assert "ends in '.txt'" in refusal(tmp_path / "g.txt")


def test_truncated_and_foreign_files(tmp_path, graph):
    torch.save(graph, tmp_path / "g.pt")
    np.savez_compressed(tmp_path / "g.npz", x=np.random.default_rng(0).random((50, 50)), edges=[[0, 1]])
    for name in ("g.pt", "g.npz"):
        content = (tmp_path / name).read_bytes()
        for cut in (0, 10, len(content) // 2, len(content) - 30):
            (tmp_path / f"cut-{name}").write_bytes(content[:cut])
            assert "cut short" in refusal(tmp_path / f"cut-{name}")
    (tmp_path / "text.pt").write_text("source,target\n0,1\n")
    assert "cut short, damaged or of another kind" in refusal(tmp_path / "text.pt")


def test_a_damaged_array_is_named(tmp_path):
    np.savez_compressed(tmp_path / "g.npz", x=np.random.default_rng(0).random((50, 50)), edges=[[0, 1]])
    content = bytearray((tmp_path / "g.npz").read_bytes())
    content[1000:1100] = bytes(100)
    (tmp_path / "g.npz").write_bytes(content)
    assert "'x' in g.npz is damaged" in refusal(tmp_path / "g.npz")


class Payload:
    """Unpickling it would create a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_code_in_a_file_is_refused_and_not_run(tmp_path, graph):
    victim = tmp_path / "ran"
    torch.save({"x": graph.x, "edge_index": graph.edge_index, "evil": Payload(victim)}, tmp_path / "g.pt")
    assert "could run code" in refusal(tmp_path / "g.pt")
    evil = np.array([Payload(victim)], dtype=object)
    np.savez(tmp_path / "g.npz", x=evil, edges=np.array([[0, 1]]))
    assert "'x' in g.npz is a pickled Python object" in refusal(tmp_path / "g.npz")
    assert not victim.exists()


def test_other_objects_are_named(tmp_path, graph):
    torch.save(graph.x, tmp_path / "g.pt")
    assert "holds a Tensor" in refusal(tmp_path / "g.pt")
    torch.save(HeteroData(), tmp_path / "g.pt")
    assert "torch_geometric.data.storage.BaseStorage" in refusal(tmp_path / "g.pt")
    torch.save({"x": graph.x, "edge_index": [[0], [1]]}, tmp_path / "g.pt")
    assert "'edge_index' of g.pt is a list" in refusal(tmp_path / "g.pt")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": None}, "has no node features: it holds 'edges'"),
        ({"edges": None}, "has no edges: it holds 'x'"),
        ({"edge_index": np.array([[0], [1]])}, "holds both 'edge_index' and 'edges'"),
        ({"x": np.ones(4)}, r"node features of g.npz have shape \[4\]"),
        ({"x": np.array([["a"], ["b"]])}, "numbers were expected"),
        ({"edges": np.ones((3, 3), dtype=int)}, r"edges of g.npz have shape \[3, 3\]"),
        ({"edges": np.ones((3, 2))}, "integer node pairs"),
        ({"train_mask": np.ones(7, dtype=bool)}, "train_mask of g.npz has shape .* 4 nodes"),
    ],
)
def test_impossible_arrays(tmp_path, change, message):
    arrays = {"x": np.ones((4, 2)), "edges": np.array([[0, 1], [1, 2], [2, 3]])} | change
    np.savez(tmp_path / "g.npz", **{name: value for name, value in arrays.items() if value is not None})
    with pytest.raises(GraphError, match=message):
        read_graph(tmp_path / "g.npz")
