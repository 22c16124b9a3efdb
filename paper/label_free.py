"""What fitting without any labels costs: Cora, the paper's hyperparameters, labelled against label-free stopping.

python -m paper.label_free --root DIR     measure what is missing, then print the table
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

import aggbuffer as ab
from aggbuffer.data import load
from aggbuffer.files import write_bytes
from aggbuffer.text import markdown_table
from paper.bases import train_new
from paper.environment import describe
from paper.settings import BASE, BUFFER

RESULTS = Path(__file__).parent / "results" / "label_free"
DATASET, SPLITS = "Cora", 5
SHARES = (1.0, 0.5, 0.0)


def measure(root: Path, split: int) -> dict[str, Any]:
    """One split: the base, a buffer stopped on validation loss, and one fitted on a graph without labels or masks."""
    data = load(DATASET, root, split=split)
    base = train_new(data, BASE[DATASET], seed=split).gnn
    settings = BUFFER[DATASET]
    wanted = {
        "drop_edge": settings.drop_edge,
        "strength": settings.strength,
        "dropout": settings.dropout,
        "self_loops": "kept",
        "seed": split,
    }
    result: dict[str, Any] = {"dataset": DATASET, "split": split, "settings": wanted, "environment": describe()}
    result["base"] = _scores(ab.evaluate(base, data, keep=SHARES))
    for name in ("labelled", "label_free"):
        seen = data if name == "labelled" else without_labels(data)
        model = ab.attach(base, seen)
        fitted = ab.fit(model, seen, **wanted)
        scores = _scores(ab.evaluate(model, data, keep=SHARES))
        result[name] = scores | {"monitor": fitted.monitor, "epochs": fitted.epochs, "seconds": fitted.seconds}
        ab.detach(model)
    return result


def without_labels(data: Any) -> Any:
    """The graph as someone without labels has it: features and edges."""
    return type(data)(x=data.x, edge_index=data.edge_index)


def table() -> str:
    """Means over the committed splits."""
    runs = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    rows = []
    for name, told in (("base", "GCN"), ("labelled", "stopped on validation loss"), ("label_free", "no labels at all")):
        means = [torch.tensor([run[name][str(share)] for run in runs]).mean().item() for share in SHARES]
        tail = torch.tensor([run[name]["tail"] for run in runs]).mean().item()
        epochs = "" if name == "base" else f"{sum(run[name]['epochs'] for run in runs) / len(runs):.0f}"
        rows.append([told, *(f"{100 * mean:.2f}" for mean in means), f"{100 * tail:.2f}", epochs])
    headers = [f"{DATASET}, {len(runs)} splits", "all edges", "half the edges", "no edges", "tail nodes", "epochs"]
    return markdown_table(headers, rows)


def _scores(evaluation: ab.Evaluation) -> dict[str, float]:
    by_share = {str(share): score.accuracy for share, score in evaluation.edge_removal.items()}
    return by_share | {"tail": evaluation.tail.accuracy}


def main() -> None:
    """Measure what is missing, one file a split; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="folder with the benchmark graphs; without it, only print the table")
    root: Path | None = parser.parse_args().root
    RESULTS.mkdir(parents=True, exist_ok=True)
    for split in range(SPLITS if root else 0):
        path = RESULTS / f"{DATASET}-{split}.json"
        if root and not path.exists():
            write_bytes(json.dumps(measure(root, split), indent=1).encode(), path)
    print(table())


if __name__ == "__main__":
    main()
