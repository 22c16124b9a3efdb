"""Test accuracy of buffers trained on mini-batches and on the whole graph, with the paper's settings.

``python -m benchmarks.scale_quality --graphs Cora --splits 1`` measures what has not been measured yet: one file for
each graph, split and way of training.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

import aggbuffer as ab
from aggbuffer.data import load
from aggbuffer.text import markdown_table
from benchmarks import results
from paper.methods import Task, gcn
from paper.settings import BASE, BUFFER
from paper.statistics import mean

COMMAND = "scale_quality"
GRAPHS, SPLITS = ("Cora", "PubMed", "CS"), 5
# As many steps without improvement as the whole graph is given epochs.
BATCH = ab.BatchConfig(seeds=1024, fanout=10, steps_per_epoch=5)
WAYS: dict[str, dict[str, Any]] = {"full": {}, "batch": {"batch": BATCH, "patience": 40, "max_epochs": 400}}


def measure(graph: str, split: int, way: str, root: Path | None) -> dict[str, Any]:
    """Train a base and fit its buffer in one of :data:`WAYS`.

    Args:
        graph: One of the paper's.
        split: Which split, and the seed of the fit.
        way: ``"full"`` or ``"batch"``.
        root: Folder with the graphs.
    """
    data, settings = load(graph, root, split=split), BUFFER[graph]
    bases = Path(__file__).parents[1] / "paper" / ".bases"
    gnn = gcn.train(Task(graph, split, data, bases, base=BASE[graph], buffer=settings, params={})).model
    before = ab.evaluate(gnn, data, keep=(1,)).overall.accuracy
    model = ab.attach(gnn, data)
    given = {"drop_edge": settings.drop_edge, "strength": settings.strength, "dropout": settings.dropout}
    config = ab.FitConfig(**given, self_loops="kept", seed=split, **WAYS[way])
    started = time.perf_counter()
    fitted = ab.fit(model, data, config, progress=False)
    seconds = time.perf_counter() - started
    return {
        "command": COMMAND,
        "graph": graph,
        "split": split,
        "way": way,
        "config": config.to_dict(),
        "before": before,
        "accuracy": ab.evaluate(model, data, keep=(1,)).overall.accuracy,
        "epochs": fitted.epochs,
        "best_epoch": fitted.best_epoch,
        "seconds": seconds,
        "environment": results.environment(torch.get_num_threads()),
    }


def place(graph: str, split: int, way: str, folder: Path = results.RESULTS) -> Path:
    """Where a measurement is kept."""
    return folder / COMMAND / graph / f"{split}-{way}.json"


def table(folder: Path = results.RESULTS) -> str:
    """Mean accuracies over the splits that were measured both ways, and how far they are apart."""
    rows = []
    for graph in GRAPHS:
        pairs = [[place(graph, split, way, folder) for way in WAYS] for split in range(SPLITS)]
        found = [[json.loads(path.read_text()) for path in pair] for pair in pairs if all(p.exists() for p in pair)]
        if not found:
            continue
        base, full, batch = (
            100 * mean(values)
            for values in (
                [one["before"] for one, _ in found],
                [one["accuracy"] for one, _ in found],
                [other["accuracy"] for _, other in found],
            )
        )
        rows.append([graph, str(len(found)), f"{base:.2f}", f"{full:.2f}", f"{batch:.2f}", f"{batch - full:+.2f}"])
    return markdown_table(["graph", "splits", "base", "whole graph", "mini-batches", "difference"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(GRAPHS))
    parser.add_argument("--splits", type=int, default=SPLITS, help="the first so many")
    parser.add_argument("--root", type=Path, help="folder with the graphs")
    given = parser.parse_args()
    for graph in given.graphs:
        for split in range(given.splits):
            for way in WAYS:
                path = place(graph, split, way)
                if not path.exists():
                    results.write_json(measure(graph, split, way, given.root), path)
                    print(f"{graph}, split {split}, {way}: {json.loads(path.read_text())['accuracy']:.4f}", flush=True)
    print(table())


if __name__ == "__main__":
    main()
