"""Units of work: one method on one split of one graph, measured once and kept as one JSON file."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aggbuffer as ab
from aggbuffer.data import load
from aggbuffer.files import write_bytes
from paper.environment import describe
from paper.methods import Task, by_name
from paper.settings import BASE, BUFFER

RESULTS = Path(__file__).parent / "results"
BASES = Path(__file__).parent / ".bases"
TABLE = "main"


@dataclass(frozen=True)
class Unit:
    """One method on one split of one graph."""

    dataset: str
    method: str
    split: int

    @property
    def path(self) -> Path:
        return RESULTS / TABLE / self.dataset / self.method.replace(" ", "-") / f"{self.split}.json"

    @property
    def is_done(self) -> bool:
        return self.path.exists()


def units(datasets: Sequence[str], methods: Sequence[str], splits: int) -> Iterator[Unit]:
    """Split by split, so that every graph has some results early."""
    for split in range(splits):
        for dataset in datasets:
            for method in methods:
                yield Unit(dataset, method, split)


def measure(unit: Unit, root: Path | None) -> dict[str, Any]:
    """Train, evaluate and write one unit."""
    data = load(unit.dataset, root, split=unit.split)
    task = Task(unit.dataset, unit.split, data, BASES, BASE[unit.dataset], BUFFER[unit.dataset], {})
    started = time.monotonic()
    outcome = by_name()[unit.method](task)
    seconds = time.monotonic() - started
    evaluation = ab.evaluate(outcome.model, data, seed=unit.split)
    result = {
        "dataset": unit.dataset,
        "method": unit.method,
        "split": unit.split,
        "test": evaluation.to_dict(),
        "validation": ab.evaluate(outcome.model, data, mask="val_mask", keep=(1,)).overall.accuracy,
        "training": outcome.record,
        "seconds": seconds,
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "environment": describe(),
    }
    unit.path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(json.dumps(result, indent=1).encode(), unit.path)
    return result


def results(dataset: str, method: str) -> list[dict[str, Any]]:
    """The results that are there, by split."""
    folder = Unit(dataset, method, 0).path.parent
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"), key=lambda path: int(path.stem))]
