"""The embedded graph is real data, the same on every call, and has the properties it promises."""

import subprocess
import sys

import pytest
import torch
from torch_geometric.utils import contains_self_loops, degree, homophily, is_undirected

from aggbuffer.data import DEMO_DESCRIPTION, demo_graph


def test_shapes_types_and_masks():
    data = demo_graph()
    assert data.x.shape == (1797, 32)
    assert data.x.dtype == torch.float32
    assert 0 <= data.x.min() < data.x.max() <= 1
    assert data.y.shape == (1797,)
    assert sorted(data.y.unique().tolist()) == list(range(10))
    masks = torch.stack([data.train_mask, data.val_mask, data.test_mask])
    assert torch.equal(masks.sum(0), torch.ones(1797, dtype=torch.long))
    assert masks.sum(1).tolist() == [180, 179, 1438]


def test_links_are_undirected_unique_uneven_and_informative():
    data = demo_graph()
    assert is_undirected(data.edge_index)
    assert not contains_self_loops(data.edge_index)
    assert data.edge_index.unique(dim=1).shape == data.edge_index.shape
    degrees = degree(data.edge_index[0], data.num_nodes)
    assert degrees.max() > 4 * degrees.median()
    assert 0.7 < homophily(data.edge_index, data.y) < 0.85


def test_a_seed_decides_everything_and_the_global_generator_is_untouched():
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    first, again, other = demo_graph(3), demo_graph(3), demo_graph(4)
    assert torch.equal(state, torch.random.get_rng_state())
    assert torch.equal(first.edge_index, again.edge_index)
    assert torch.equal(first.test_mask, again.test_mask)
    assert first.edge_index.shape != other.edge_index.shape
    assert torch.equal(first.x, other.x)


def test_the_samples_are_those_of_scikit_learn():
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed")
    original = datasets.load_digits()
    data = demo_graph()
    assert torch.equal(data.x * 16, torch.from_numpy(original.data[:, :32]).float())
    assert torch.equal(data.y, torch.from_numpy(original.target).long())


def test_the_description_names_source_and_licence():
    assert "CC BY 4.0" in DEMO_DESCRIPTION
    assert "made for this demonstration" in DEMO_DESCRIPTION


def test_the_data_modules_do_not_import_pyg():
    """Checked on the modules themselves: what the package's own ``__init__`` imports is not theirs to decide."""
    code = (
        "import sys, types, pathlib, importlib.util as u\n"
        "spec = u.find_spec('aggbuffer'); parent = types.ModuleType('aggbuffer')\n"
        "parent.__path__ = list(spec.submodule_search_locations); sys.modules['aggbuffer'] = parent\n"
        "import aggbuffer.data\n"
        "sys.exit('torch_geometric' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
