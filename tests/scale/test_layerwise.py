"""Layer by layer, in chunks, every model says what it says of the whole graph at once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GINConv, GCNConv, PairNorm, SGConv, global_mean_pool

import aggbuffer
from aggbuffer import BufferConfig, BufferedGNN
from aggbuffer.errors import GraphError, ModelError
from aggbuffer.graph import Graph
from aggbuffer.scale.draws import DropEdge, Kept
from aggbuffer.scale.layerwise import Layerwise
from aggbuffer.scale.source import GraphSource
from conftest import CLASSES, FEATURES, Footprint, answer, as_csr, seeded, shake, small_graph
from helpers_fit import refused
from test_attach import (
    CONVS,
    HIDDEN,
    NO_CSR,
    READY,
    WEIGHTED,
    WITH_ATTRIBUTES,
    HandWritten,
    HandWrittenWithAttributes,
    HandWrittenWithWeights,
    mlp,
    sequential,
)

TINY = 6000  # bytes, so that every layer takes several chunks


def check(gnn: nn.Module, data: Data, config: BufferConfig | None = None, *, memory: int = TINY) -> None:
    """The base and the model with moved buffers, all nodes and some; nothing about the model changes."""
    footprint = Footprint(gnn)
    gnn.eval()
    _same(gnn, data, memory)
    for part, training in zip(gnn.modules(), footprint.modes, strict=True):
        part.training = training
    model = shake(aggbuffer.attach(gnn, data, config))
    _same(model, data, memory)
    aggbuffer.detach(model)
    footprint.check()


def _same(model: nn.Module, data: Data, memory: int) -> None:
    with torch.no_grad():
        expected = _run(model, data)
    torch.testing.assert_close(aggbuffer.infer(model, data, memory=memory), expected, rtol=1e-5, atol=1e-5)
    some = torch.tensor([9, 2, 13])
    torch.testing.assert_close(
        aggbuffer.infer(model, data, memory=memory, nodes=some), expected[some], rtol=1e-5, atol=1e-5
    )


def _run(model: nn.Module, data: Data) -> Tensor:
    from aggbuffer.forward import default_forward

    if isinstance(model, BufferedGNN):
        with model.plainly():
            return model.run(data)
    return default_forward(model, data)


@pytest.mark.parametrize("norm", [None, "BatchNorm", "LayerNorm"])
@pytest.mark.parametrize("jk", [None, "cat", "max", "lstm"])
@pytest.mark.parametrize("name", READY)
def test_ready_models(name: str, jk: str | None, norm: str | None) -> None:
    kwargs = {"norm_kwargs": {"mode": "node"}} if norm == "LayerNorm" else {}
    gnn = seeded(lambda: READY[name](FEATURES, HIDDEN, 3, CLASSES, dropout=0.5, jk=jk, norm=norm, **kwargs))
    check(gnn, small_graph())


@pytest.mark.parametrize("site", ["aggregation", "output"])
@pytest.mark.parametrize("name", CONVS)
def test_convolutions_in_a_hand_written_model(name: str, site: str) -> None:
    for directed, loops, csr in [(False, False, False), (True, True, False), (True, False, True), (True, True, True)]:
        if csr and name in NO_CSR:
            continue
        data = small_graph(directed=directed, loops=loops)
        gnn = seeded(lambda: HandWritten(CONVS[name]))
        check(gnn, as_csr(data) if csr else data, BufferConfig(site=site))


@pytest.mark.parametrize("weighted_degree", [False, True])
@pytest.mark.parametrize("name", WEIGHTED)
def test_edge_weights(name: str, weighted_degree: bool) -> None:
    data = small_graph(weights=True, directed=True, loops=True)
    config = BufferConfig(weighted_degree=weighted_degree)
    check(seeded(lambda: HandWrittenWithWeights(CONVS[name], "edge_weight")), data, config)
    if name not in NO_CSR:
        check(seeded(lambda: HandWritten(CONVS[name])), as_csr(small_graph(weights=True, directed=True)), config)


@pytest.mark.parametrize("name", WITH_ATTRIBUTES)
def test_edge_attributes(name: str) -> None:
    gnn = seeded(lambda: HandWrittenWithAttributes(WITH_ATTRIBUTES[name], "edge_attr"))
    check(gnn, small_graph(attributes=3))
