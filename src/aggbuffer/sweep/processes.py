"""Further workers on this machine: processes that build graph and model from the same files."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from aggbuffer.errors import AggBufferError

_SECONDS_TO_LEAVE = 20.0


@dataclass(frozen=True)
class Task:
    """What a worker needs to do its share.

    Attributes:
        graph: A path, as on the command line.
        model: Likewise, what builds the base.
        weights: Likewise.
        split: Likewise.
        out: The folder of the results.
        options: Further arguments of :func:`aggbuffer.sweep`.
    """

    graph: Path
    model: str
    weights: Path | None
    split: int
    out: Path
    options: dict[str, Any]


class Helpers:
    """Workers beside this process; they stop when it does, however it ends."""

    def __init__(self, task: Task, count: int, threads: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._running: list[tuple[SpawnProcess, Connection]] = []
        for number in range(count):
            ours, theirs = spawn.Pipe(duplex=False)
            process = spawn.Process(target=_work, args=(task, threads, theirs), name=f"worker {number + 2}")
            process.start()
            theirs.close()
            self._running.append((process, ours))

    def stop(self) -> None:
        """Have them put down their trials and leave."""
        for process, _ in self._running:
            process.terminate()
        for process, _ in self._running:
            process.join(_SECONDS_TO_LEAVE)
            if process.is_alive():
                process.kill()
                process.join()

    def wait(self) -> list[str]:
        """Wait until they are done; returns what went wrong in each that failed."""
        told = []
        for process, connection in self._running:
            process.join()
            with contextlib.suppress(EOFError, OSError):
                told.append(f"{process.name}: {connection.recv()}")
                continue
            if process.exitcode:
                told.append(f"{process.name}: ended with code {process.exitcode}")
        return told


@contextlib.contextmanager
def helpers(task: Task, count: int, threads: int) -> Iterator[Helpers]:
    """Start further workers; whatever happens, none is left behind.

    Args:
        task: What to do.
        count: How many.
        threads: For each.
    """
    beside = Helpers(task, count, threads)
    try:
        yield beside
    except BaseException:
        beside.stop()
        raise


def _work(task: Task, threads: int, connection: Connection) -> None:
    # The first process hears of Ctrl-C and says so by SIGTERM: heard twice, it could break into the clearing up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    try:
        with contextlib.redirect_stdout(sys.stderr):  # whatever the model's own code prints: results are the parent's
            _search(task, threads)
    except KeyboardInterrupt:
        raise SystemExit(1) from None
    except Exception as error:
        kind = "" if isinstance(error, AggBufferError) else f"{type(error).__name__}: "
        connection.send(f"{kind}{error}")
        raise SystemExit(1) from None


def _search(task: Task, threads: int) -> None:
    import torch

    from aggbuffer.cli.inputs import read_inputs
    from aggbuffer.sweep.run import sweep

    torch.set_num_threads(threads)
    data, gnn = read_inputs(task.graph, task.model, task.weights, split=task.split)
    sweep(gnn, data, task.out, progress=False, **task.options)


def _leave(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
