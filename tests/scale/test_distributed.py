"""Several real processes come to what one comes to, and tell in a sentence when one of them is gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from aggbuffer import AggBufferError
from aggbuffer.errors import ConfigError
from aggbuffer.scale.distributed import joined

TRAINED = {"drop_edge": 0.5, "dropout": 0.3, "patience": 50, "seed": 3, "monitor": "rc_loss", "lr": 0.02}
BATCHES = {"batch": {"seeds": 40, "fanout": 4}, "max_epochs": 6, **TRAINED}
WHOLE = {"max_epochs": 30, **TRAINED}
CLOSE = 1e-6  # more than it takes: parts of a step are computed to the same bits by whichever process


@dataclass(frozen=True)
class Ran:
    """What a run left behind.

    Attributes:
        folder: Where.
        codes: Exit code of every process.
        lag: Seconds from the first end of a process to the last.
    """

    folder: Path
    codes: list[int]
    lag: float

    def parameters(self, rank: int = 0) -> list[Tensor]:
        return list(load_file(self.folder / f"{rank}.safetensors").values())

    def result(self, rank: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / f"{rank}.json").read_text())
        return found

    def told(self, rank: int) -> str:
        return (self.folder / f"{rank}.txt").read_text()


def apart(first: list[Tensor], second: list[Tensor]) -> float:
    return max((a - b).abs().max().item() for a, b in zip(first, second, strict=True))


def runs_in(folder: Path) -> dict[str, dict[str, Any]]:
    """All runs of these tests, which share one start of Python; a copied checkpoint is that of an earlier run."""
    plans: dict[str, dict[str, Any]] = {}
    for size in (1, 2, 4):
        plans[f"batches {size}"] = {"size": size, **BATCHES}
    for size in (1, 3):
        plans[f"whole {size}"] = {"size": size, **WHOLE}
    for rank in (1, 0):
        plans[f"killed {rank}"] = {"size": 3, "kill": [rank, 3], **BATCHES, "checkpoint": str(folder / f"{rank}.ckpt")}
        for size in (1, 2):
            copied = str(folder / f"{rank}-{size}.ckpt")
            source = [str(folder / f"{rank}.ckpt"), copied]
            plans[f"resumed {rank} {size}"] = {"size": size, "copy": source, **BATCHES, "checkpoint": copied}
    for size in (1, 2):  # with labels, both ways to treat self-loops are tried before
        plans[f"tried {size}"] = {"size": size, **BATCHES, "monitor": "val_loss"}
    plans["failed"] = {"size": 2, "fail": [1, 2], **BATCHES}
    return plans


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    folder = tmp_path_factory.mktemp("ranks")
    plans = runs_in(folder)
    listed = [{"out": str(folder / name), **plan} for name, plan in plans.items()]
    script = [sys.executable, str(Path(__file__).with_name("ranks_run.py")), json.dumps(listed)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return {name: Ran(folder / name, *json.loads((folder / name / "codes.json").read_text())) for name in plans}


@pytest.mark.parametrize(("name", "sizes"), [("batches", (2, 4)), ("whole", (3,))])
def test_any_number_of_processes_learns_the_same(ran: dict[str, Ran], name: str, sizes: tuple[int, ...]) -> None:
    alone = ran[f"{name} 1"]
    assert alone.result()["best_epoch"] > 2  # so that there is something to compare
    assert max(p.abs().max().item() for p in alone.parameters()) > 0.01
    for size in sizes:
        several = ran[f"{name} {size}"]
        assert several.codes == [0] * size
        assert apart(several.parameters(), alone.parameters()) < CLOSE
        for rank in range(1, size):
            assert all(map(torch.equal, several.parameters(rank), several.parameters()))
            assert several.result(rank)["history"] == several.result()["history"]
        for mine, theirs in zip(several.result()["history"], alone.result()["history"], strict=True):
            assert mine == pytest.approx(theirs, abs=1e-5)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_process_ends_the_run_with_a_sentence(ran: dict[str, Ran], rank: int) -> None:
    killed = ran[f"killed {rank}"]
    survivors = [other for other in range(3) if other != rank]
    assert killed.codes[rank] == -signal.SIGKILL
    assert killed.lag < 15
    for other in survivors:
        assert killed.codes[other] == 1
        assert killed.told(other).startswith(f"{survivors[0]}: Rank {rank} of 3 has gone")
        assert "with any number of processes: it goes on from" in killed.told(other)
        assert f"{rank}.ckpt" in killed.told(other)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("size", [1, 2])
def test_a_killed_run_goes_on_with_another_number_of_processes(ran: dict[str, Ran], rank: int, size: int) -> None:
    resumed = ran[f"resumed {rank} {size}"]
    assert resumed.codes == [0] * size
    assert apart(resumed.parameters(), ran["batches 1"].parameters()) < CLOSE
    epochs = [record["epoch"] for record in resumed.result()["history"]]
    assert epochs == list(range(1, BATCHES["max_epochs"] + 1))  # type: ignore[operator]


def test_all_processes_go_on_with_the_same_way_to_treat_self_loops(ran: dict[str, Ran]) -> None:
    alone, several = ran["tried 1"], ran["tried 2"]
    assert several.codes == [0, 0]
    for rank in (0, 1):
        assert several.result(rank)["config"]["self_loops"] == alone.result()["config"]["self_loops"] != "auto"
        for mine, theirs in zip(several.result(rank)["history"], alone.result()["history"], strict=True):
            assert mine == pytest.approx(theirs, abs=1e-5)


def test_a_process_that_fails_tells_the_others_why(ran: dict[str, Ran]) -> None:
    failed = ran["failed"]
    assert failed.codes == [1, 2]
    assert failed.told(0).startswith("0: Rank 1 of 2 has failed: Something is wrong with this graph.")
    assert "With a checkpoint" in failed.told(0)


def test_processes_that_cannot_meet_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="MASTER_ADDR is not; start the processes with torchrun"), joined():
        pass
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    with pytest.raises(AggBufferError, match=r"could not meet at 127.0.0.1:1"), joined(timeout=1):
        pass
    with pytest.raises(ConfigError, match="timeout"), joined(timeout=0):
        pass
