"""``torchrun -m aggbuffer fit``: several processes, of which the first alone speaks and writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from aggbuffer import store

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
sys.path.insert(0, str(Path(__file__).parents[1] / "store"))
from cli_inputs import Files, clustered_graph, write_files
from store_inputs import write_csv

pytestmark = pytest.mark.slow


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return write_files(tmp_path)


def start(size: int, *args: object) -> subprocess.Popen[str]:
    """The command line in several processes, as a group of their own."""
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={size}"]
    command = [*launcher, "-m", "aggbuffer", *map(str, args)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def fit(files: Files, size: int, *options: str) -> tuple[int, str, str]:
    process = start(size, "fit", *files.inputs, *options)
    stdout, stderr = process.communicate(timeout=120)
    return process.returncode, stdout, stderr


def test_two_processes_write_one_file_with_what_one_process_learns(files: Files) -> None:
    settings = ["--max-epochs", "4", "--batch-size", "20", "--dropout", "0.3", "--lr", "0.001", "--json"]
    found = {}
    for size in (1, 2):
        out, report = files.folder / f"{size}.safetensors", files.folder / f"{size}.html"
        code, stdout, stderr = fit(files, size, "--out", str(out), "--report", str(report), *settings)
        assert code == 0, stderr
        assert json.loads(stdout)["fit"]["best_epoch"] > 0  # one document, and something was learned
        assert report.exists()
        found[size] = load_file(out)
    for name, value in found[1].items():
        assert (value - found[2][name]).abs().max() < 1e-6


def test_a_store_is_a_graph_for_several_processes(files: Files) -> None:

    data, raw = clustered_graph(), files.folder / "raw"
    raw.mkdir()
    np.save(raw / "features.npy", data.x.numpy())
    np.save(raw / "labels.npy", data.y.numpy())
    np.save(raw / "masks.npy", np.stack([data[f"{name}_mask"].numpy() for name in ("train", "val", "test")], axis=1))
    source, target = data.edge_index.tolist()
    write_csv(raw / "edges.csv", {"source": source, "target": target})
    store.build(raw, files.folder / "graph.store")
    inputs = ["--graph", files.folder / "graph.store", *files.inputs[2:]]
    out = files.folder / "x.safetensors"
    process = start(2, "fit", *inputs, "--out", out, "--max-epochs", 3, "--batch-size", 20)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert stdout.count("Buffer:") == 1
    done = subprocess.run(
        [sys.executable, "-m", "aggbuffer", "evaluate", *map(str, inputs), "--buffer", str(out), "--memory", "4MiB"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "heterophilous" in done.stdout


def test_bad_input_is_told_once(files: Files) -> None:
    files.graph.unlink()
    code, stdout, stderr = fit(files, 2, "--out", str(files.folder / "x.safetensors"))
    assert code != 0
    assert stdout == ""
    assert stderr.count("There is no graph at") == 1


@contextmanager
def endless(files: Files, size: int, *options: object) -> Iterator[tuple[subprocess.Popen[str], Callable[[str], str]]]:
    """A run without end, and what waits until it says something on standard error and returns all that it has said.

    The launcher puts its processes into sessions of their own, so it is asked to end them.
    """
    told = files.folder / f"stderr-{size}"
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={size}", "-m", "aggbuffer", "fit"]
    command = [*launcher, *files.inputs, *map(str, options), "--max-epochs", str(10**6), "--patience", str(10**6)]
    with told.open("w") as errors:
        process = subprocess.Popen(command, stdout=errors, stderr=errors, env=os.environ | {"OMP_NUM_THREADS": "1"})

    def says(words: str) -> str:
        until = time.monotonic() + 60
        while words not in told.read_text():
            assert time.monotonic() < until, told.read_text()
            time.sleep(0.05)
        return told.read_text()

    try:
        yield process, says  # type: ignore[misc]
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_a_killed_rank_is_named_and_the_run_goes_on_with_another_number(files: Files) -> None:
    checkpoint, out = files.folder / "run.safetensors", files.folder / "x.safetensors"
    options = ["--out", out, "--batch-size", 20, "--checkpoint", checkpoint]
    with endless(files, 3, *options) as (process, says):
        says("epoch 1/")
        os.kill(rank_of(process, 2), signal.SIGKILL)
        told = says("ChildFailedError")  # the launcher's own words, which come last
        assert process.wait(timeout=60) != 0
    assert told.count("Error: Rank 2 of 3 has gone") == 1
    assert "it goes on from" in told
    assert not out.exists()
    with endless(files, 2, *options) as (_, says):
        says("going on after epoch")


def test_ctrl_c_says_what_was_kept(files: Files) -> None:
    checkpoint = files.folder / "run.safetensors"
    with endless(files, 2, "--out", files.folder / "x", "--checkpoint", checkpoint) as (process, says):
        says("epoch 1/")
        for pid in (rank_of(process, 0), rank_of(process, 1)):  # as a terminal does, but for the launcher
            os.kill(pid, signal.SIGINT)
        told = says("Stopped;")
        assert process.wait(timeout=60) != 0
    assert told.count("Stopped;") == 1
    assert "keeps the state after epoch" in told


def rank_of(launcher: subprocess.Popen[str], rank: int) -> int:
    """The process with that rank among those that a launcher has started."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent == launcher.pid and f"RANK={rank}" in (path / "environ").read_text().split("\0"):
                return int(path.name)
        except OSError:
            continue
    raise AssertionError("there is no such process")
