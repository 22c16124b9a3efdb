"""A graph worth fitting on, base models trained on it, and a run that can be killed. Shared by the tests of training.

Run as a script it is that run: ``python helpers_fit.py CHECKPOINT OUT`` fits in processes of its own, kills each with
SIGKILL at a random moment, resumes, and writes the final parameters and history once one of them comes through.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GraphSAGE
from torch_geometric.utils import to_torch_csr_tensor

import aggbuffer
from aggbuffer import AggBufferError, BufferConfig, BufferedGNN
from aggbuffer.fit import EpochRecord

NODES, FEATURES, CLASSES = 90, 6, 3


@lru_cache
def _communities(seed: int, nodes: int, directed: bool) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) % CLASSES
    likely = torch.where(y[:, None] == y[None], 0.14, 0.03)
    likely[-1] = likely[:, -1] = 0.0  # the last node is isolated
    linked = torch.rand(nodes, nodes, generator=draw) < likely
    linked.fill_diagonal_(False)
    if not directed:
        linked = linked.triu() | linked.triu().t()
    x = 0.7 * torch.eye(CLASSES, FEATURES)[y] + torch.randn(nodes, FEATURES, generator=draw)
    return x, linked.nonzero().t().contiguous(), y


def community_graph(seed: int = 0, *, nodes: int = NODES, directed: bool = False) -> Data:
    """Three communities whose links and noisy features both tell of the class."""
    x, edge_index, y = _communities(seed, nodes, directed)
    part = torch.arange(nodes) // CLASSES % 3
    data = Data(x=x.clone(), edge_index=edge_index.clone(), y=y.clone())
    data.train_mask, data.val_mask, data.test_mask = part == 0, part == 1, part == 2
    return data


def with_csr(data: Data) -> Data:
    """The same graph with its edges as a transposed CSR adjacency."""
    other = data.clone()
    del other.edge_index
    other.adj_t = to_torch_csr_tensor(data.edge_index.flip(0), size=(data.num_nodes, data.num_nodes))
    return other


def targets_of(task: str, data: Data) -> Tensor:
    """Labels of another kind for the same graph."""
    if task == "multilabel":
        return torch.stack([data.y == 0, data.y != 1, data.x[:, 0] > 0], dim=1).float()
    if task == "binary":
        return (data.y == 0).long()
    if task == "regression":
        return torch.stack([data.x[:, 0] + data.y, data.x[:, 1] - data.y], dim=1)
    return data.y


@lru_cache
def base(kind: str = "gcn", task: str = "multiclass") -> nn.Module:
    """A GNN trained on :func:`community_graph`; shared, so whoever changes it must change it back."""
    data = community_graph()
    y = targets_of(task, data)
    outputs = CLASSES if task == "multiclass" else (1 if y.dim() == 1 else y.size(1))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if kind == "gcn":
            gnn: nn.Module = GCN(FEATURES, 8, 2, outputs, dropout=0.5)
        elif kind == "sage":
            gnn = GraphSAGE(FEATURES, 8, 2, outputs)
        else:
            gnn = GCN(FEATURES, 8, 2, outputs, dropout=0.5, norm="batch_norm")
        optimizer = torch.optim.Adam(gnn.parameters(), lr=0.05)
        for _ in range(40):
            optimizer.zero_grad()
            out = gnn(data.x, data.edge_index)[data.train_mask]
            goal = y[data.train_mask]
            if task == "multiclass":
                loss = F.cross_entropy(out, goal)
            elif task == "regression":
                loss = F.mse_loss(out, goal)
            else:
                loss = F.binary_cross_entropy_with_logits(out, goal.view_as(out).float())
            loss.backward()
            optimizer.step()
    for parameter in gnn.parameters():
        parameter.grad = None
    return gnn.eval()


@contextmanager
def buffered(gnn: nn.Module, data: Data, config: BufferConfig | None = None) -> Iterator[BufferedGNN]:
    """The model with buffers; at the end they are detached, and the base must be what it was, to the bit."""
    state = {key: value.clone() for key, value in gnn.state_dict().items()}
    asked = [parameter.requires_grad for parameter in gnn.parameters()]
    modes = [module.training for module in gnn.modules()]
    with torch.no_grad():
        said = gnn(data.x, data.edge_index)
    model = aggbuffer.attach(gnn, data, config)
    try:
        yield model
    finally:
        assert aggbuffer.detach(model) is gnn
    assert list(gnn.state_dict()) == list(state)
    assert all(torch.equal(gnn.state_dict()[key], value) for key, value in state.items())
    assert [parameter.requires_grad for parameter in gnn.parameters()] == asked
    assert [module.training for module in gnn.modules()] == modes
    assert all(parameter.grad is None for parameter in gnn.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in gnn.modules())
    with torch.no_grad():
        assert torch.equal(gnn(data.x, data.edge_index), said)


def weights(model: BufferedGNN) -> list[Tensor]:
    """A copy of the buffers' parameters."""
    return [parameter.detach().clone() for parameter in model.buffer_parameters()]


def move(model: BufferedGNN, size: float = 0.2) -> None:
    """Put the buffers somewhere else than at zero."""
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.buffer_parameters():
            parameter.copy_(size * torch.randn(parameter.shape, generator=draw))


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@contextmanager
def refused(words: str, kind: type[AggBufferError] = AggBufferError) -> Iterator[None]:
    """Whatever is inside is refused on purpose, in one readable line that says ``words`` (a regular expression)."""
    with pytest.raises(kind, match=words) as caught:
        yield
    told = str(caught.value)
    assert "\n" not in told
    assert told.endswith(".")
    assert len(told) < 260


KILLED_RUN = {"drop_edge": 0.5, "dropout": 0.3, "max_epochs": 60, "patience": 60, "seed": 3, "progress": False}


def _killed_again_and_again(checkpoint: Path, out: Path) -> None:
    data, chance = community_graph(), random.Random(os.environ["KILL_SEED"])
    gnn, kills = base(), 0
    while True:
        before = _written(checkpoint)
        child = os.fork()  # one thread only: torch is told so by OMP_NUM_THREADS
        if child == 0:
            model = aggbuffer.attach(gnn, data)

            def paced(record: EpochRecord) -> None:
                time.sleep(0.004)

            options = {**KILLED_RUN, "checkpoint_every": 0, "callbacks": [paced]}
            result = aggbuffer.fit(model, data, checkpoint=checkpoint, **options)
            save_file({str(i): value for i, value in enumerate(weights(model))}, out.with_suffix(".safetensors"))
            out.write_text(json.dumps({"kills": kills, **result.to_dict()}))
            os._exit(0)
        done, status = os.waitpid(child, os.WNOHANG)
        while not done:
            if kills < 5 and _written(checkpoint) != before:  # it is in the middle of its epochs
                time.sleep(0.15 * chance.random())
                os.kill(child, signal.SIGKILL)
            time.sleep(0.001)
            done, status = os.waitpid(child, os.WNOHANG)
        code = os.waitstatus_to_exitcode(status)
        if code != -signal.SIGKILL:
            os._exit(code)
        kills += 1


def _written(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


if __name__ == "__main__":
    _killed_again_and_again(Path(sys.argv[1]), Path(sys.argv[2]))
