"""Where ``POINTS_PER_FLIP`` comes from: flips, which need no labels, beside what a fitted buffer gains on test nodes.

python -m benchmarks.calibrate_diagnosis --root DIR     measure what is missing, then print the coefficients
python -m benchmarks.calibrate_diagnosis                print those of the committed results

Fourteen of the committed runs are older than this script, as their notes say; measured again with it, they gave the
same numbers but for rounding.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GraphSAGE

import aggbuffer as ab
from aggbuffer.data import demo_graph, load, random_masks
from aggbuffer.diagnose import KEEP, POINTS_PER_FLIP
from aggbuffer.files import write_bytes
from aggbuffer.text import markdown_table
from paper.environment import describe

RESULTS = Path(__file__).parent / "results" / "diagnosis"
DEMO = "demo"
ARCHITECTURES = {"GCN": GCN, "GraphSAGE": GraphSAGE, "GAT": GAT}
DROPOUT, LR, WEIGHT_DECAY, BASE_EPOCHS = 0.5, 0.01, 5e-4, 200
FIT_EPOCHS = 400  # all else by default
# The share of edges kept whose flips tell the gain at each share: with all edges there are none.
TOLD_BY = {share: 0.5 if share == 1 else share for share in KEEP}


@dataclass(frozen=True)
class Run:
    """One base with two layers on one random 10/10/80 split, whose number is also the seed."""

    graph: str
    architecture: str
    hidden: int
    split: int

    @property
    def path(self) -> Path:
        return RESULTS / f"{self.graph}-{self.architecture}-{self.hidden}-{self.split}.json"

    @property
    def calibrates(self) -> bool:
        """Whether the coefficients are fitted to it; the other runs show how they do elsewhere."""
        return self.architecture == "GCN" and self.graph in ("Cora", "CiteSeer", DEMO)


BASES = (
    ("Cora", "GCN", 64),
    ("Cora", "GCN", 256),
    ("CiteSeer", "GCN", 64),
    (DEMO, "GCN", 64),
    (DEMO, "GCN", 256),
    ("Cora", "GraphSAGE", 64),
    (DEMO, "GraphSAGE", 64),
    ("Cora", "GAT", 16),
    ("Chameleon", "GCN", 64),
)
RUNS = tuple(Run(*base, split) for base in BASES for split in (0, 1))


@dataclass(frozen=True)
class Row:
    """What one run gave, by the share of edges kept.

    Attributes:
        run: The run.
        flips: Percent of all nodes whose predicted class changes.
        before: Test accuracy of the base, in percent.
        gain: Points of test accuracy that the buffer adds.
    """

    run: Run
    flips: dict[float, float]
    before: dict[float, float]
    gain: dict[float, float]


def measure(run: Run, root: Path) -> dict[str, Any]:
    """Train the base, count its flips, fit a buffer, and compare."""
    started = time.monotonic()
    data = graph_of(run, root)
    gnn = train(run, data)
    flips = {share: 100 * found.overall for share, found in ab.diagnose(gnn, data).flips.items()}
    before = ab.evaluate(gnn, data, keep=KEEP)
    model = ab.attach(gnn, data)
    fitted = ab.fit(model, data, self_loops="kept", max_epochs=FIT_EPOCHS)
    after = ab.evaluate(model, data, keep=KEEP)
    accuracy = {share: 100 * before.edge_removal[share].accuracy for share in KEEP}
    return {
        "graph": run.graph,
        "architecture": run.architecture,
        "hidden": run.hidden,
        "split": run.split,
        "fit": {"max_epochs": FIT_EPOCHS},
        "flips": flips,
        "before": accuracy,
        "gain": {share: 100 * after.edge_removal[share].accuracy - accuracy[share] for share in KEEP},
        "tail_gain": 100 * (after.tail.accuracy - before.tail.accuracy),
        "best_epoch": fitted.best_epoch,
        "seconds": time.monotonic() - started,
        "environment": describe(),
    }


def graph_of(run: Run, root: Path) -> Data:
    """The run's graph; for every one a random split, also where a fixed one is published."""
    if run.graph == DEMO:
        return demo_graph(run.split)
    data = load(run.graph, root, split=None, sources=("local",))
    return data.update(random_masks(data.num_nodes, run.split))


def train(run: Run, data: Data) -> nn.Module:
    """A base stopped on validation accuracy."""
    best, state = -1.0, {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.split)
        build = ARCHITECTURES[run.architecture]
        gnn: nn.Module = build(data.num_features, run.hidden, 2, int(data.y.max()) + 1, dropout=DROPOUT)
        optimizer = torch.optim.Adam(gnn.parameters(), lr=LR, weight_decay=WEIGHT_DECAY)
        for _ in range(BASE_EPOCHS):
            gnn.train()
            loss = F.cross_entropy(gnn(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            gnn.eval()
            with torch.no_grad():
                right = gnn(data.x, data.edge_index).argmax(-1) == data.y
            accuracy = right[data.val_mask].float().mean().item()
            if accuracy > best:
                best, state = accuracy, {key: value.clone() for key, value in gnn.state_dict().items()}
    gnn.load_state_dict(state)
    return gnn


def rows() -> list[Row]:
    """The results that are there."""
    return [_row(run) for run in RUNS if run.path.exists()]


def _row(run: Run) -> Row:
    found = json.loads(run.path.read_text())
    values = ({share: found[name][str(share)] for share in KEEP} for name in ("flips", "before", "gain"))
    return Row(run, *values)


def points_per_flip(measured: Sequence[Row]) -> dict[float, tuple[float, float]]:
    """What ``aggbuffer.diagnose.POINTS_PER_FLIP`` should be."""
    calibrating = [row for row in measured if row.run.calibrates]
    return {share: (TOLD_BY[share], round(slope(calibrating, share), 2)) for share in KEEP}


def told(row: Row, share: float) -> float:
    """The points that ``diagnose`` tells for a run."""
    told_by, coefficient = POINTS_PER_FLIP[share]
    return coefficient * row.flips[told_by]


def slope(measured: Sequence[Row], share: float) -> float:
    """Points gained for a percent of flips: least squares through the origin, each graph counting alike."""
    graphs = [row.run.graph for row in measured]
    weights = [1 / graphs.count(graph) for graph in graphs]
    flips = [row.flips[TOLD_BY[share]] for row in measured]
    products = sum(w * x * row.gain[share] for w, x, row in zip(weights, flips, measured, strict=True))
    return products / sum(w * x * x for w, x in zip(weights, flips, strict=True))


def left_out_errors(measured: Sequence[Row], share: float) -> list[float]:
    """How many points the estimate is off on each calibrating run, with that run's graph left out of the fit."""
    calibrating = [row for row in measured if row.run.calibrates]
    errors = []
    for row in calibrating:
        others = [other for other in calibrating if other.run.graph != row.run.graph]
        errors.append(abs(row.gain[share] - slope(others, share) * row.flips[TOLD_BY[share]]))
    return errors


def coefficient_table(measured: Sequence[Row]) -> str:
    """The coefficients, how much single runs differ from them, and the error on a graph left out."""
    lines = []
    for share, (told_by, coefficient) in points_per_flip(measured).items():
        single = [row.gain[share] / row.flips[told_by] for row in measured if row.run.calibrates]
        errors = left_out_errors(measured, share)
        cells = [f"{share:g}", f"{told_by:g}", f"{coefficient:.2f}", f"{min(single):.2f} to {max(single):.2f}"]
        lines.append([*cells, f"{sum(errors) / len(errors):.1f}", f"{max(errors):.1f}"])
    headers = ["edges kept", "flips at", "points per % of flips", "single runs", "off if left out", "at most"]
    return markdown_table(headers, lines)


def run_table(measured: Sequence[Row]) -> str:
    """Points that the package tells and points gained, for every run."""
    lines = []
    for row in measured:
        name = f"{row.run.graph}, {row.run.architecture} {row.run.hidden}, split {row.run.split}"
        cells = [f"{told(row, share):.1f} / {row.gain[share]:.1f}" for share in KEEP]
        lines.append([name, "yes" if row.run.calibrates else "no", f"{row.before[1.0]:.1f}", *cells])
    return markdown_table(["told / gained", "calibrates", "base", *(f"{share:g}" for share in KEEP)], lines)


def main() -> None:
    """Measure what is missing, one file a run; print the coefficients and every run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="folder with the benchmark graphs; without it, only print")
    root: Path | None = parser.parse_args().root
    RESULTS.mkdir(parents=True, exist_ok=True)
    for run in RUNS if root else ():
        if root and not run.path.exists():
            write_bytes(json.dumps(measure(run, root), indent=1).encode(), run.path)
            print(f"measured {run.path.name}", flush=True)
    measured = rows()
    print(coefficient_table(measured), run_table(measured), sep="\n\n")


if __name__ == "__main__":
    main()
