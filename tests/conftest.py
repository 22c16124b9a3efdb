"""Small graphs, small models and the shared folder, for all tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, to_torch_csr_tensor

from aggbuffer import BufferedGNN
from browser import browser  # noqa: F401 (a fixture for all tests)

FEATURES, CLASSES = 6, 4

torch.sparse.check_sparse_tensor_invariants.enable()
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="aggbuffer-tests-")  # what is measured here stays here
torch.set_num_threads(1)  # on small graphs threads only wait for each other


def small_graph(
    seed: int = 0,
    *,
    nodes: int = 14,
    edges: int = 30,
    features: int = FEATURES,
    directed: bool = False,
    loops: bool = False,
    weights: bool = False,
    attributes: int = 0,
) -> Data:
    """A random graph whose last node is isolated, with labels and masks."""
    draw = torch.Generator().manual_seed(seed)
    ends = torch.randint(nodes - 1, (2, edges), generator=draw)
    ends = ends[:, ends[0] != ends[1]]
    if not directed:
        ends = torch.cat([ends, ends.flip(0)], dim=1)
    if loops:
        ends = torch.cat([ends, torch.arange(0, nodes - 1, 4).repeat(2, 1)], dim=1)
    edge_index = coalesce(ends)
    data = Data(x=torch.randn(nodes, features, generator=draw), edge_index=edge_index)
    if weights:
        data.edge_weight = torch.rand(edge_index.size(1), generator=draw) + 0.5
    if attributes:
        data.edge_attr = torch.randn(edge_index.size(1), attributes, generator=draw)
    data.y = torch.randint(CLASSES, (nodes,), generator=draw)
    part = torch.arange(nodes) % 3
    data.train_mask, data.val_mask, data.test_mask = part == 0, part == 1, part == 2
    return data


def as_csr(data: Data) -> Data:
    """The same graph with its edges as a transposed ``torch.sparse_csr`` adjacency."""
    weight = data.get("edge_weight")
    csr = Data(x=data.x)
    csr.adj_t = to_torch_csr_tensor(data.edge_index.flip(0), weight, size=data.num_nodes)
    return csr


def shake(model: BufferedGNN, seed: int = 1, size: float = 0.3) -> BufferedGNN:
    """Move the buffers away from zero."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.buffer_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw) * size)
    return model


class Footprint:
    """Everything about a module that attaching and detaching must leave as it was."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.state = {key: value.clone() for key, value in module.state_dict().items()}
        self.objects = [id(parameter) for parameter in module.parameters()]
        self.requires_grad = [parameter.requires_grad for parameter in module.parameters()]
        self.modes = [part.training for part in module.modules()]
        self.hooks = self._hooks()

    def _hooks(self) -> list[int]:
        return [
            len(value)
            for part in self.module.modules()
            for name, value in sorted(vars(part).items())
            if name.endswith("_hooks") and hasattr(value, "__len__")
        ]

    def check(self) -> None:
        state = self.module.state_dict()
        assert list(state) == list(self.state)
        for key, value in self.state.items():
            assert state[key].dtype == value.dtype
            assert torch.equal(state[key], value) or bool((state[key].isnan() & value.isnan()).any()), key
        assert [id(parameter) for parameter in self.module.parameters()] == self.objects
        assert [parameter.requires_grad for parameter in self.module.parameters()] == self.requires_grad
        assert [part.training for part in self.module.modules()] == self.modes
        assert self._hooks() == self.hooks


def seeded(build: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """A module with weights of its own seed; the global random state stays."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def answer(model: nn.Module, *args: Tensor, **kwargs: Tensor) -> Tensor:
    """What a model says in evaluation mode, which it leaves again."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    with torch.no_grad():
        out: Tensor = model(*args, **kwargs)
    for part, training in modes:
        part.training = training
    return out


@pytest.fixture
def graph() -> Data:
    """An undirected graph with an isolated node."""
    return small_graph()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with the reference checkpoints and the benchmark data: $AGGBUFFER_SHARED, or ../shared."""
    folder = Path(os.environ.get("AGGBUFFER_SHARED", Path(__file__).parents[2] / "shared"))
    if not folder.is_dir():
        pytest.skip(f"needs the shared folder; {folder} is missing (set AGGBUFFER_SHARED)")
    return folder


@pytest.fixture(scope="session")
def shared_data(shared: Path) -> Path:
    """The benchmark files in it."""
    folder = shared / "data"
    if not folder.is_dir():
        pytest.skip(f"there are no benchmark files at {folder}")
    return folder
