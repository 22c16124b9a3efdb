"""A base and a graph small enough to search in seconds, on disk and in memory, and workers to kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import torch
from optuna.storages.journal import JournalFileBackend
from safetensors.torch import save_file

from aggbuffer.sweep.records import SETTLES, TrialRecord
from helpers_fit import base, community_graph

SPACE: dict[str, Any] = {"strength": [1, 0.5], "drop_edge": [0.2, 0.7], "dropout": [0, 0.5]}
POINTS = 8
SHORT = {"max_epochs": 15, "progress": False}

MODEL = """
from torch_geometric.nn import GCN


def build():
    return GCN(6, 8, 2, 3, dropout=0.5)


def other():
    import torch

    gnn = build()
    torch.nn.init.ones_(gnn.convs[0].bias)
    return gnn
"""


@dataclass(frozen=True)
class Inputs:
    """Files of a search.

    Attributes:
        folder: That all are in.
        options: Of the command line, which name them and keep the fits short.
    """

    folder: Path
    options: list[str]


def write_inputs(folder: Path, *, epochs: int = 60) -> Inputs:
    """Write graph, model, weights and space."""
    folder.mkdir(parents=True, exist_ok=True)
    graph, model, weights, space = (folder / name for name in ("g.pt", "model.py", "w.safetensors", "space.json"))
    torch.save(community_graph(), graph)
    model.write_text(MODEL)
    save_file(base().state_dict(), weights)
    space.write_text(json.dumps(SPACE))
    named = {"graph": graph, "model": f"{model}:build", "weights": weights, "space": space, "max-epochs": epochs}
    return Inputs(folder, [part for name, value in named.items() for part in (f"--{name}", str(value))])


def start(inputs: Inputs, out: Path, *options: object, **environment: str) -> subprocess.Popen[str]:
    """``aggbuffer sweep`` in a process of its own."""
    command = [sys.executable, "-m", "aggbuffer", "sweep", *inputs.options, "--out", out, *options]
    return subprocess.Popen(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def journal_records(path: Path, name: str = "sweep") -> list[TrialRecord]:
    """What a journal holds now; nothing before there is a study."""
    if not path.exists():
        return []
    try:
        storage = optuna.storages.JournalStorage(JournalFileBackend(str(path)))
        study = optuna.load_study(study_name=name, storage=storage)
    except KeyError:
        return []
    return [TrialRecord.of(trial) for trial in study.get_trials(deepcopy=False)]


def end(processes: list[subprocess.Popen[str]]) -> None:
    """Kill what still runs, and close its pipes."""
    for process in processes:
        process.kill()
        process.communicate()


def kill_in_a_trial(
    records: Callable[[], list[TrialRecord]], of: Callable[[int], bool] = lambda process: True
) -> TrialRecord:
    """Kill a worker that is surely in the middle of a trial, and return that trial.

    Args:
        records: Reads the study.
        of: Whether a process is one to kill.
    """
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        for record in records():
            if record.state != "running" or record.worker is None or not of(process_of(record)):
                continue
            process = process_of(record)
            os.kill(process, signal.SIGSTOP)
            if next(r for r in records() if r.number == record.number).state == "running":
                os.kill(process, signal.SIGKILL)
                return record
            os.kill(process, signal.SIGCONT)
        time.sleep(0.02)
    raise AssertionError("no worker was seen in a trial")


def process_of(record: TrialRecord) -> int:
    """Which process is at a trial."""
    assert record.worker is not None
    return int(record.worker.split("-")[-2])


def each_once(records: list[TrialRecord], points: int = POINTS) -> None:
    """Every point was measured to the end exactly once, and nobody is at it any more."""
    settled = [record.point for record in records if record.state in SETTLES]
    assert sorted(point for point in settled if point is not None) == list(range(points))
    assert not [record for record in records if record.state == "running"]
