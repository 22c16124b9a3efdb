"""The bars of the reproduction: is GCN_B above GCN, by how much of what was published, and how sure is that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aggbuffer.text import markdown_table
from paper import published
from paper.definitions import HERE
from paper.statistics import Paired, mean, paired
from paper.store import Store
from paper.tables import accuracy
from paper.units import Unit

METRICS = {"overall": "overall", "tail": "tail nodes", "keep 0.0": "no edges left"}
RECIPES = ("GCN_B paper", "GCN_B reference", "GCN_B default")
_TABLES = ("main", "removal")
_ENOUGH = 5  # graphs on which the interval must be above zero


@dataclass(frozen=True)
class Graph:
    """GCN and one recipe of GCN_B on one graph, over the splits that both have.

    Attributes:
        dataset: The graph.
        base: Mean accuracy of GCN over all test nodes.
        buffered: The same of GCN_B.
        gains: Paired differences by metric.
    """

    dataset: str
    base: float
    buffered: float
    gains: dict[str, Paired]

    def near_published(self) -> bool:
        """Whether both means are within a point or the published deviation, whichever is more."""
        for ours, line in ((self.base, "GCN"), (self.buffered, "GCN_B")):
            beside = published.value(_TABLES, "overall", line, self.dataset)
            if beside and abs(ours - beside[0]) > max(1.0, beside[1]):
                return False
        return True

    def published_gap(self, metric: str) -> float:
        """What the paper gains."""
        after = published.value(_TABLES, metric, "GCN_B", self.dataset)
        before = published.value(_TABLES, metric, "GCN", self.dataset)
        return after[0] - before[0] if after and before else math.nan


def compare(store: Store, recipe: str) -> list[Graph]:
    """Every graph on which both were measured."""
    graphs = []
    for dataset in HERE:
        before, after = (store.all_splits(Unit.of(dataset, method, 0)) for method in ("GCN", recipe))
        splits = sorted(before.keys() & after.keys())
        if splits:
            old, new = [before[s] for s in splits], [after[s] for s in splits]
            gains = {m: paired(_values(old, m), _values(new, m)) for m in METRICS}
            graphs.append(Graph(dataset, mean(_values(old, "overall")), mean(_values(new, "overall")), gains))
    return graphs


def verdicts(graphs: Sequence[Graph]) -> list[tuple[str, int, int]]:
    """Each bar: what it asks for, on how many graphs it is cleared, and on how many it must be."""
    every = len(HERE)
    return [
        ("GCN and GCN_B within a point or a published deviation", sum(g.near_published() for g in graphs), every),
        ("GCN_B above GCN", sum(g.gains["overall"].difference > 0 for g in graphs), every),
        ("95 % interval of that above zero", sum(g.gains["overall"].low > 0 for g in graphs), _ENOUGH),
        ("tail nodes gain", sum(g.gains["tail"].difference > 0 for g in graphs), every),
        (
            "without edges, at least half of the published gain",
            sum(g.gains["keep 0.0"].difference >= 0.5 * g.published_gap("keep 0.0") for g in graphs),
            every,
        ),
    ]


def report(store: Store) -> str:
    """Differences and verdicts of every recipe that was measured, as markdown."""
    parts = []
    for recipe in RECIPES:
        if graphs := compare(store, recipe):
            parts += [_gains(graphs, recipe), _verdicts(graphs)]
    return "\n\n".join(parts) or "Nothing has been measured yet."


def _gains(graphs: Sequence[Graph], recipe: str) -> str:
    headers = [f"{recipe} − GCN, points", *(f"{told} (published)" for told in METRICS.values()), "splits"]
    rows = []
    for graph in graphs:
        cells = [f"{_interval(graph.gains[m])} ({_signed(graph.published_gap(m))})" for m in METRICS]
        rows.append([graph.dataset, *cells, str(graph.gains["overall"].count)])
    return markdown_table(headers, rows)


def _verdicts(graphs: Sequence[Graph]) -> str:
    rows = [[bar, f"{count} of {len(HERE)}", str(wanted), "yes" if count >= wanted else "no"]
            for bar, count, wanted in verdicts(graphs)]  # fmt: skip
    return markdown_table(["bar", "graphs", "wanted", "cleared"], rows)


def _values(results: Sequence[dict[str, Any]], metric: str) -> list[float]:
    return [accuracy(result, metric) for result in results]


def _interval(gain: Paired) -> str:
    middle = _signed(gain.difference)
    return middle if math.isnan(gain.low) else f"{middle} [{_signed(gain.low)}, {_signed(gain.high)}]"


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")
