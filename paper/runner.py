"""Measure many units: one after another or in several processes, each unit once, whoever else is at it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from typing import Any

import torch

from paper.durations import Durations, estimate, told
from paper.store import Store
from paper.units import Unit

Measure = Callable[[Unit, Path | None], dict[str, Any]]


@dataclass(frozen=True)
class Event:
    """What became of a unit.

    Attributes:
        unit: Which.
        kind: ``"done"``, ``"failed"``, ``"held"`` (someone else measures it) or ``"there"`` (someone else has).
        result: What was measured.
        error: The traceback of a failure.
    """

    unit: Unit
    kind: str
    result: dict[str, Any] | None = None
    error: str = ""


@dataclass(frozen=True)
class Summary:
    """How many units were measured, failed, or were left to another runner."""

    done: int
    failed: int
    held: int


def run(
    units: Sequence[Unit],
    measure: Measure,
    *,
    store: Store,
    root: Path | None = None,
    jobs: int = 1,
    tell: Callable[[str], None] = print,
) -> Summary:
    """Measure the units that are not there yet, and tell each; a failure goes to standard error, the others go on.

    Args:
        units: In the order of their importance.
        measure: What to do with one; importable by name if ``jobs`` is above 1.
        store: Where results go.
        root: Folder with the graphs.
        jobs: How many processes.
        tell: Where lines of progress go.
    """
    todo = [unit for unit in units if not store.has(unit)]
    durations = Durations(store)
    jobs = max(1, min(jobs, len(todo)))
    if todo:
        tell(f"{len(todo)} of {len(units)} units to do; estimate: {estimate(durations, todo, jobs)}")
    left, counts = list(todo), {"done": 0, "failed": 0, "held": 0, "there": 0}
    with contextlib.closing(_events(todo, measure, store, root, jobs)) as events:
        for event in events:
            counts[event.kind] += 1
            left.remove(event.unit)
            if event.kind == "failed":
                print(f"{event.unit} failed:\n{event.error}", file=sys.stderr, flush=True)
            if event.result is not None:
                seconds = event.result["seconds"] + event.result.get("evaluation_seconds", 0.0)
                durations.add(event.unit, seconds)
                ahead = f"{estimate(durations, left, jobs)} left" if left else "all done"
                tell(f"[{len(todo) - len(left)}/{len(todo)}] {event.unit}: {_accuracy(event.result)}, "
                     f"{told(seconds)}; {ahead}")  # fmt: skip
    return Summary(counts["done"], counts["failed"], counts["held"])


def attempt(unit: Unit, measure: Measure, store: Store, root: Path | None) -> Event:
    """Measure one unit unless it is there or someone is at it."""
    with store.claim(unit) as mine:
        if not mine:
            return Event(unit, "held")
        if store.has(unit):
            return Event(unit, "there")
        try:
            result = measure(unit, root)
            store.write(unit, result)
        except Exception:
            return Event(unit, "failed", error=traceback.format_exc())
        return Event(unit, "done", result)


def threads_for(jobs: int) -> int:
    """Threads of each of so many processes, so that together they use every core once; $OMP_NUM_THREADS goes first."""
    if asked := os.environ.get("OMP_NUM_THREADS"):
        return int(asked)
    usable = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0)
    return max(1, len(usable) // jobs)


def _events(todo: Sequence[Unit], measure: Measure, store: Store, root: Path | None, jobs: int) -> Iterator[Event]:
    if jobs == 1:
        torch.set_num_threads(threads_for(1))
        for unit in todo:
            yield attempt(unit, measure, store, root)
        return
    spawn = multiprocessing.get_context("spawn")
    position, queue = spawn.Value("i", 0), spawn.Queue()
    threads = threads_for(jobs)
    work = partial(_work, list(todo), measure, store, root, threads, position, queue)
    workers = [spawn.Process(target=work, daemon=True) for _ in range(jobs)]
    with _environment(OMP_NUM_THREADS=str(threads)):  # read once, when torch is imported
        for worker in workers:
            worker.start()
    open_units = set(todo)
    try:
        while open_units:
            alive = any(worker.is_alive() for worker in workers)
            try:
                event = queue.get(timeout=0.5)
            except Empty:
                if alive:
                    continue
                break
            open_units.discard(event.unit)
            yield event
        for unit in sorted(open_units, key=todo.index):
            yield Event(unit, "failed", error="Its process ended; the kernel may have wanted the memory.")
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()


def _work(
    todo: list[Unit],
    measure: Measure,
    store: Store,
    root: Path | None,
    threads: int,
    position: Any,
    queue: Queue[Event],
) -> None:
    """A process's life: take the next unit until there is none, or until nobody is there to tell."""
    torch.set_num_threads(threads)
    parent = os.getppid()
    with contextlib.suppress(KeyboardInterrupt):
        while os.getppid() == parent:
            with position.get_lock():
                at = position.value
                position.value += 1
            if at >= len(todo):
                return
            queue.put(attempt(todo[at], measure, store, root))


@contextlib.contextmanager
def _environment(**changes: str) -> Iterator[None]:
    before = {key: os.environ.get(key) for key in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def _accuracy(result: dict[str, Any]) -> str:
    if "test" in result:
        return f"{100 * result['test']['overall']['accuracy']:.2f} %"
    return f"{100 * result['validation']:.2f} % on validation nodes" if "validation" in result else "measured"
