"""Runs that are interrupted in any way and go on in the same bits, and checkpoints that belong elsewhere."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import aggbuffer
from aggbuffer import BufferConfig, FitResult
from aggbuffer.errors import BufferFileError
from aggbuffer.fit import EpochRecord
from aggbuffer.graph import Graph
from aggbuffer.perturb import drop_edge
from helpers_fit import CLASSES, FEATURES, KILLED_RUN, base, buffered, community_graph, refused, same, weights

OPTIONS: dict[str, Any] = {"progress": False, "max_epochs": 14, "lr": 0.03, "checkpoint_every": 0}


def run(path: Path | None, data: Data | None = None, **options: Any) -> tuple[FitResult, list[Tensor]]:
    """A fit of fresh buffers: its result without the time it took, and its parameters."""
    data = community_graph() if data is None else data
    with buffered(base(), data) as model:
        result = aggbuffer.fit(model, data, checkpoint=path, **{**OPTIONS, **options})
        return replace(result, seconds=0.0), weights(model)


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def test_a_process_killed_at_random_moments_ends_in_the_same_bits(tmp_path: Path) -> None:
    checkpoint, out = tmp_path / "run.checkpoint", tmp_path / "out.json"
    seed = str(int.from_bytes(os.urandom(4), "little"))
    script = Path(__file__).with_name("helpers_fit.py")
    subprocess.run(
        [sys.executable, str(script), str(checkpoint), str(out)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "KILL_SEED": seed},
        check=True,
        timeout=120,
    )
    told = json.loads(out.read_text())
    found = load_file(out.with_suffix(".safetensors"))
    data = community_graph()
    with buffered(base(), data) as model:
        expected = aggbuffer.fit(model, data, **KILLED_RUN)
        assert told["kills"] >= 1, f"KILL_SEED={seed}"
        assert told["history"] == json.loads(json.dumps(expected.to_dict()))["history"], f"KILL_SEED={seed}"
        assert (told["best_epoch"], told["stopped"]) == (expected.best_epoch, expected.stopped)
        assert same([found[str(i)] for i in range(len(found))], weights(model)), f"KILL_SEED={seed}"


@pytest.mark.parametrize("options", [{}, {"dropout": 0.4}, {"monitor": "rc_loss"}, {"monitor": "val_accuracy"}])
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("where", ["between epochs", "within an epoch"])
def test_an_interrupted_run_goes_on_in_the_same_bits(
    tmp_path: Path, options: dict[str, Any], error: type[BaseException], where: str
) -> None:
    path, left = tmp_path / "run", [5]

    def interrupt() -> None:
        left[0] -= 1
        if left[0] == 0:
            raise error("here")

    def perturb(graph: Graph, generator: torch.Generator) -> Data:
        dropped = drop_edge(graph, 0.5, generator)  # the generator has moved on by the time of the interrupt
        if where == "within an epoch":
            interrupt()
        return dropped

    def callback(record: EpochRecord) -> None:
        if where == "between epochs":
            interrupt()

    expected = run(None, perturb=lambda graph, generator: drop_edge(graph, 0.5, generator), **options)
    with pytest.raises(error, match="here"):
        run(path, perturb=perturb, callbacks=[callback], **options)
    result, bits = run(path, perturb=perturb, callbacks=[callback], **options)
    assert result == expected[0]
    assert same(bits, expected[1])


def test_a_run_goes_on_in_the_very_model_that_was_interrupted(tmp_path: Path) -> None:
    expected, data = run(None), community_graph()
    with buffered(base(), data) as model:

        def stop(record: EpochRecord) -> None:
            if record.epoch == 9:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            aggbuffer.fit(model, data, checkpoint=tmp_path / "run", callbacks=[stop], **OPTIONS)
        result = aggbuffer.fit(model, data, checkpoint=tmp_path / "run", **OPTIONS)
        assert replace(result, seconds=0.0) == expected[0]
        assert same(weights(model), expected[1])


def test_a_checkpoint_changes_nothing_about_a_run(tmp_path: Path) -> None:
    expected, with_file = run(None), run(tmp_path / "run")
    assert with_file[0] == expected[0]
    assert same(with_file[1], expected[1])


def test_a_finished_run_is_given_back_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run"
    first = run(path)
    before = path.stat().st_mtime_ns

    def never(*_: Any) -> Any:
        raise AssertionError("nothing is left to do")

    again = run(path, callbacks=[never])
    assert again[0] == first[0]
    assert same(again[1], first[1])
    assert path.stat().st_mtime_ns == before


def test_the_seconds_of_all_parts_are_added(tmp_path: Path) -> None:
    data = community_graph()
    seconds = []
    for _ in range(2):
        with buffered(base(), data) as model:
            seconds.append(aggbuffer.fit(model, data, checkpoint=tmp_path / "run", **OPTIONS).seconds)
    assert seconds[0] == seconds[1] > 0


def test_checkpoints_are_written_no_more_often_than_asked(tmp_path: Path) -> None:
    path, seen = tmp_path / "run", set()

    def look(record: EpochRecord) -> None:
        seen.add(path.read_bytes())

    run(path, callbacks=[look], checkpoint_every=3600)
    assert len(seen) == 1  # the one of the start
    path.unlink()
    seen.clear()
    run(path, callbacks=[look])
    assert len(seen) == 14


def _relabelled() -> Data:
    data = community_graph()
    data.y = data.y.roll(1)
    return data


def _weighted() -> Data:
    data = community_graph()
    data.edge_weight = torch.ones(data.num_edges)
    return data


def _shuffled_features() -> Data:
    data = community_graph()
    data.x = data.x.flip(0)
    return data


def _other_validation() -> Data:
    data = community_graph()
    data.val_mask, data.test_mask = data.test_mask, data.val_mask
    return data


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (community_graph(), {"seed": 1}),
        (community_graph(), {"drop_edge": 0.4}),
        (community_graph(), {"max_epochs": 15}),
        (community_graph(1), {}),
        (community_graph(directed=True), {}),
        (_relabelled(), {}),
        (_weighted(), {}),
        (_shuffled_features(), {}),
        (_other_validation(), {}),
    ],
)
def test_a_checkpoint_of_other_settings_or_another_graph_is_refused(
    tmp_path: Path, data: Data, options: dict[str, Any]
) -> None:
    path = tmp_path / "run"
    run(path)
    before = path.read_bytes()
    with buffered(base(), community_graph()) as model:
        with refused("belongs to a run with other settings, another graph or another base", BufferFileError):
            aggbuffer.fit(model, data, checkpoint=path, **{**OPTIONS, **options})
        assert not any(parameter.any() for parameter in model.buffer_parameters())
    assert path.read_bytes() == before


@pytest.mark.parametrize("config", [BufferConfig(bias=True), BufferConfig(block="jknet"), BufferConfig(block="single")])
def test_a_checkpoint_of_other_buffers_is_refused(tmp_path: Path, config: BufferConfig) -> None:
    data = community_graph()
    run(tmp_path / "run")
    with buffered(base(), data, config) as model, refused("belongs to a run with other settings", BufferFileError):
        aggbuffer.fit(model, data, checkpoint=tmp_path / "run", **OPTIONS)


def test_a_checkpoint_of_another_base_is_refused(tmp_path: Path) -> None:
    data, gnn = community_graph(), base()
    run(tmp_path / "run")
    bias = gnn.convs[1].bias
    kept = bias.detach().clone()
    try:
        with torch.no_grad():
            bias[0] = torch.nextafter(bias[0], torch.tensor(9.0))
        with buffered(gnn, data) as model, refused("another base model", BufferFileError):
            aggbuffer.fit(model, data, checkpoint=tmp_path / "run", **OPTIONS)
    finally:
        with torch.no_grad():
            bias.copy_(kept)


class Bomb:
    """Unpickling this is seen."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.environ["BOMB"],)


def test_damaged_and_foreign_files_are_refused_and_never_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, data = tmp_path / "good", community_graph()
    run(good)
    content = good.read_bytes()
    bomb = tmp_path / "exploded"
    monkeypatch.setenv("BOMB", str(bomb))
    buffer_file = tmp_path / "buffer.safetensors"
    foreign: dict[str, bytes] = {
        "empty": b"",
        "a few bytes": content[:5],
        "half its header": content[:200],
        "a byte too short": content[:-1],
        "text": b"epoch,loss\n1,0.5\n" * 20,
        "a pickle": pickle.dumps(Bomb()),
    }
    torch.save({"state": Bomb()}, tmp_path / "torch")
    foreign["a torch file"] = (tmp_path / "torch").read_bytes()
    save_file({"x": torch.zeros(2)}, tmp_path / "other")
    foreign["another safetensors file"] = (tmp_path / "other").read_bytes()
    save_file({"x": torch.zeros(2)}, tmp_path / "other", metadata={"format": "aggbuffer-checkpoint-1"})
    foreign["a checkpoint that says nothing"] = (tmp_path / "other").read_bytes()
    with buffered(base(), data) as model:
        aggbuffer.save(model, buffer_file)
        foreign["a buffer file"] = buffer_file.read_bytes()
        for name, wrong in foreign.items():
            path = tmp_path / "run"
            path.write_bytes(wrong)
            with refused("cannot be read|is no checkpoint|belongs to a run", BufferFileError):
                aggbuffer.fit(model, data, checkpoint=path, **OPTIONS)
            assert path.read_bytes() == wrong, name
            assert not any(parameter.any() for parameter in model.buffer_parameters()), name
        with refused("is a folder; name a file in it", BufferFileError):
            aggbuffer.fit(model, data, checkpoint=tmp_path, **OPTIONS)
    assert not bomb.exists()
    pickle.loads(foreign["a pickle"])
    assert bomb.exists()  # it would have been seen


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_to_is_told_before_training(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    data = community_graph()
    with buffered(base(), data) as model, refused("cannot be written", BufferFileError):
        aggbuffer.fit(model, data, checkpoint=folder / "run", **OPTIONS)


def test_half_precision_is_kept_exactly(tmp_path: Path) -> None:
    data = community_graph()
    data.x = data.x.bfloat16()

    with torch.random.fork_rng(devices=[]):
        gnn = GCN(FEATURES, 8, 2, CLASSES).bfloat16().eval()
    gnn.load_state_dict(base().state_dict())
    runs = []
    for path in (None, tmp_path / "run", tmp_path / "run"):
        with buffered(gnn, data) as model:
            runs.append((aggbuffer.fit(model, data, checkpoint=path, **OPTIONS).history, weights(model)))
    assert runs[0][0] == runs[1][0] == runs[2][0]
    assert same(runs[0][1], runs[1][1])
    assert same(runs[0][1], runs[2][1])
