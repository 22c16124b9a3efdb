"""``fit`` on mini-batches: reproducible, resumable, and with clusters or a loader of the user's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GCNConv
from torch_geometric.utils import k_hop_subgraph

import aggbuffer
from aggbuffer import BatchConfig, BufferConfig, FitConfig
from aggbuffer.errors import AggBufferError, ConfigError, ModelError
from conftest import seeded, small_graph
from helpers_fit import CLASSES, FEATURES, base, buffered, community_graph, refused, same, targets_of, weights

SHORT: dict[str, Any] = {"max_epochs": 4, "patience": 4, "progress": False, "dropout": 0.3, "seed": 2}
BATCHES = {
    "all neighbours": BatchConfig(seeds=40),
    "sampled": BatchConfig(seeds=40, fanout=3),
    "steps": BatchConfig(seeds=20, fanout=3, steps_per_epoch=3),
    "clusters": BatchConfig(seeds=30, clusters=9),
}


def _check_tools(kind: str) -> None:
    if kind == "clusters":
        pytest.importorskip("pymetis", reason="pymetis, of the extra 'clusters', is not installed")


@pytest.mark.parametrize("kind", BATCHES)
def test_the_same_seed_gives_the_same_bits_with_and_without_prefetching(kind: str) -> None:
    _check_tools(kind)
    data, seen = community_graph(), []
    for batch in (BATCHES[kind], BATCHES[kind].override(prefetch=0), BATCHES[kind].override(prefetch=3)):
        with buffered(base(), data) as model:
            result = aggbuffer.fit(model, data, batch=batch, **SHORT)
            seen.append((weights(model), [record.score for record in result.history]))
    assert all(same(found, seen[0][0]) and scores == seen[0][1] for found, scores in seen[1:])
    assert any(bool(w.any()) for w in seen[0][0]) or len(set(seen[0][1])) > 1


@pytest.mark.parametrize("kind", BATCHES)
def test_a_resumed_run_ends_with_the_same_bits(kind: str, tmp_path: Path) -> None:
    _check_tools(kind)
    data, options = community_graph(), {**SHORT, "batch": BATCHES[kind], "strength": 0.1}
    with buffered(base(), data) as model:
        whole = aggbuffer.fit(model, data, **options)
        expected = weights(model)
    path = tmp_path / "run"
    for stop in (1, 3, 9):
        with buffered(base(), data) as model:

            def at(record: Any, stop: int = stop) -> None:
                if record.epoch == stop:
                    raise KeyboardInterrupt

            try:
                result = aggbuffer.fit(model, data, checkpoint=path, checkpoint_every=0, callbacks=[at], **options)
            except KeyboardInterrupt:
                continue
            assert same(weights(model), expected)
            assert [r.score for r in result.history] == [r.score for r in whole.history]


def test_prefetching_and_memory_may_change_between_runs_but_no_other_setting(tmp_path: Path) -> None:
    data, path = community_graph(), tmp_path / "run"
    batch = BATCHES["sampled"]
    for changed in (batch, batch.override(prefetch=0, memory=10_000)):
        with buffered(base(), data) as model:
            aggbuffer.fit(model, data, batch=changed, checkpoint=path, **SHORT)
    with buffered(base(), data) as model, refused("belongs to a run with other settings"):
        aggbuffer.fit(model, data, batch=batch.override(fanout=4), checkpoint=path, **SHORT)


def test_it_learns_what_the_full_batch_learns() -> None:
    """The robustness term falls."""
    data = community_graph()
    with buffered(base(), data) as model:
        result = aggbuffer.fit(
            model, data, batch=BatchConfig(seeds=45, fanout=5), drop_edge=0.5, max_epochs=60, progress=False
        )
    first, last = result.history[0], result.history[-1]
    assert last.robust < 0.8 * first.robust


def test_validation_is_that_of_the_whole_graph() -> None:
    data = community_graph()
    with buffered(base(), data) as model:
        result = aggbuffer.fit(model, data, batch=BATCHES["sampled"], strength=0.1, **{**SHORT, "patience": 1})
        again = aggbuffer.fit(model, data, max_epochs=0, progress=False)  # only scores what is there
        assert again.best_score == pytest.approx(result.best_score, rel=1e-5)


def test_without_labels_it_stops_on_the_loss_itself(caplog: pytest.LogCaptureFixture) -> None:
    data = community_graph()
    del data.y, data.train_mask, data.val_mask
    with buffered(base(), data) as model:
        result = aggbuffer.fit(model, data, batch=BATCHES["sampled"], drop_edge=0.5, **SHORT)
    assert result.monitor == "rc_loss"
    assert "No labelled validation nodes" in caplog.text
    assert all(record.score > 0 for record in result.history)


def test_redrawn_self_loops_count_in_batches() -> None:
    data = community_graph()
    robust = []
    for loops in ("kept", "redrawn"):
        with buffered(base(), data) as model:
            options = {**SHORT, "self_loops": loops, "drop_edge": 0.0, "max_epochs": 1, "monitor": "rc_loss"}
            result = aggbuffer.fit(model, data, batch=BATCHES["sampled"], **{**options, "dropout": 0.0})
            robust.append(result.history[0].robust)
    assert robust[0] == pytest.approx(0, abs=1e-9)  # nothing differs between the two passes
    assert robust[1] > 1e-6
    with buffered(base("sage"), data) as model, refused("self_loops='redrawn' needs a model whose layers"):
        aggbuffer.fit(model, data, batch=BATCHES["sampled"], self_loops="redrawn", **SHORT)


class KHopBatches:
    """Whole neighbourhoods of a few seeds, as PyG's NeighborLoader would make them without its compiled library."""

    def __init__(self, data: Data, size: int) -> None:
        self.data, self.size = data, size

    def __iter__(self) -> Iterator[Data]:
        for seeds in torch.arange(self.data.num_nodes).split(self.size):
            nodes, _, _, _ = k_hop_subgraph(seeds, 2, self.data.edge_index, num_nodes=self.data.num_nodes)
            others = nodes[~torch.isin(nodes, seeds)]
            n_id = torch.cat([seeds, others])
            place = torch.full((self.data.num_nodes,), -1)
            place[n_id] = torch.arange(n_id.numel())
            inside = place[self.data.edge_index]
            inside = inside[:, (inside >= 0).all(0)]
            yield Data(x=self.data.x[n_id], edge_index=inside, n_id=n_id, batch_size=seeds.numel())


def test_batches_of_a_loader() -> None:
    data = community_graph()
    with buffered(base(), data) as model:
        options = {**SHORT, "dropout": 0.0, "drop_edge": 0.0, "max_epochs": 1}
        loaded = aggbuffer.fit(model, data, loader=KHopBatches(data, 90), **options).history[0]
        own = aggbuffer.fit(model, data, batch=BatchConfig(seeds=90, parts=1), **options).history[0]
        assert loaded.val_loss == pytest.approx(own.val_loss, rel=1e-4)
        result = aggbuffer.fit(model, data, loader=KHopBatches(data, 30), **SHORT)
    assert result.epochs == 4


@pytest.mark.parametrize("parts", [1, 5])
@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
def test_nodes_without_a_label_are_in_nobodys_way(task: str, parts: int) -> None:
    """Parts of a step that have no training node are computed with the labels of nodes that have none."""
    data = community_graph()
    data.y = targets_of(task, data).clone()
    data.y[data.test_mask] = -1 if task == "multiclass" else torch.nan
    gnn, results = base("gcn", task), []
    for batch in (None, BatchConfig(seeds=90, parts=parts)):
        with buffered(gnn, data) as model:
            options = {"loss": "cross_entropy", "drop_edge": 0.0, "max_epochs": 3, "self_loops": "kept"}
            results.append(aggbuffer.fit(model, data, batch=batch, progress=False, **options).history)
    for whole, parted in zip(*results, strict=True):
        assert (parted.bias, parted.val_loss) == pytest.approx((whole.bias, whole.val_loss), rel=1e-4)


class Counted(list[Data]):
    """Batches that say how often they were asked for, but not how many they are."""

    asked = 0

    def __iter__(self) -> Iterator[Data]:
        self.asked += 1
        return super().__iter__()


def test_each_way_to_treat_self_loops_is_tried_for_some_fifty_steps_of_a_loader() -> None:
    data = community_graph()
    batch = Data(x=data.x, edge_index=data.edge_index, n_id=torch.arange(90))
    loader = Counted([batch] * 20)
    with buffered(base(), data) as model:
        result = aggbuffer.fit(model, data, loader=loader, max_epochs=5, progress=False)
    assert result.epochs == 5
    assert loader.asked == 2 * 3 + 5


def test_batches_without_seeds_of_their_own_count_as_a_whole() -> None:
    data = community_graph()
    data.n_id = torch.arange(90)
    parts = [data.subgraph(torch.arange(90) % 3 == part) for part in range(3)]
    with buffered(base(), data) as model:
        assert aggbuffer.fit(model, data, loader=parts, **SHORT).epochs == 4


@pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without")
def test_neighbor_loader() -> None:
    data = community_graph()
    try:
        loader = NeighborLoader(data, num_neighbors=[-1, -1], batch_size=30, shuffle=False)
        next(iter(loader))
    except ImportError as error:
        pytest.skip(f"PyG's NeighborLoader needs pyg-lib or torch-sparse: {error}")
    with buffered(base(), data) as model:
        assert aggbuffer.fit(model, data, loader=loader, **SHORT).epochs == 4


def test_loaders_that_cannot_be_used_are_told_why() -> None:
    data = community_graph()
    for loader, words in [
        ([Data(x=data.x, edge_index=data.edge_index)], "have no n_id"),
        ([7], "The loader gave a int"),
        ([], "gave no batch"),
        ([Data(x=data.x[:, :2], edge_index=data.edge_index, n_id=torch.arange(90))], "do not fit the graph"),
        ([Data(x=data.x, n_id=torch.arange(90))], "have no edge_index"),
        ([Data(x=data.x, edge_index=data.edge_index, n_id=torch.arange(90) + 1)], "refers to node 90"),
    ]:
        with buffered(base(), data) as model, refused(words):
            aggbuffer.fit(model, data, loader=loader, **SHORT)


def test_what_mini_batches_cannot_do_is_refused_before_anything_changes() -> None:
    data, batch = community_graph(), BatchConfig(seeds=30)
    with buffered(base(), data) as model:
        with refused("perturb= changes the whole graph", ConfigError):
            aggbuffer.fit(model, data, batch=batch, perturb=lambda graph, generator: graph.data, **SHORT)
        with refused("clusters is 91, but the graph has 90 nodes", ConfigError):
            aggbuffer.fit(model, data, batch=BatchConfig(clusters=91), **SHORT)
        assert not any(bool(w.any()) for w in weights(model))
    with buffered(base(), data, BufferConfig(weighted_degree=True)) as model, refused("weighted_degree=True needs all"):
        aggbuffer.fit(model, data, batch=BatchConfig(fanout=2), **SHORT)

    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GCNConv(FEATURES, CLASSES, flow="target_to_source")

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return self.conv(x, edge_index)

    with refused("'conv' sends messages from target to source", ModelError):
        aggbuffer.fit(aggbuffer.attach(seeded(Backwards), data), data, batch=batch, **SHORT)
    with buffered(base(), data) as model, refused("8 features per node, but the model was attached", AggBufferError):
        aggbuffer.fit(model, small_graph(features=8), batch=batch, **SHORT)


def test_clusters_without_pymetis_tell_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    data = community_graph()
    with buffered(base(), data) as model, refused(r"pip install 'aggbuffer\[clusters\]'"):
        aggbuffer.fit(model, data, batch=BATCHES["clusters"], **SHORT)


def test_batch_settings_are_checked_and_survive_json() -> None:
    config = FitConfig(batch=BatchConfig(seeds=7, fanout=3))
    assert FitConfig.from_dict(config.to_dict()) == config
    assert FitConfig(batch={"clusters": 4}).batch == BatchConfig(clusters=4)  # type: ignore[arg-type]
    with refused("no setting 'seed'", ConfigError):
        FitConfig.from_dict({"batch": {"seed": 4}})
    with refused("batch must be a BatchConfig", ConfigError):
        FitConfig(batch=7)  # type: ignore[arg-type]
    with refused("fanout must be one number", ConfigError):
        BatchConfig(fanout=(5, 3))  # type: ignore[arg-type]
    with refused("give one", ConfigError):
        BatchConfig(fanout=5, clusters=3)
    for name in ("seeds", "fanout", "clusters", "steps_per_epoch", "memory"):
        with refused(f"{name} must be", ConfigError):
            BatchConfig(**{name: 0})
