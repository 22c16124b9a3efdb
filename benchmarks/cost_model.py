"""What a fit costs on a graph of any size: time and memory as sums of a few terms whose weights are measured.

A term is a count that follows from sizes alone: numbers that a step moves, nodes, edges. Its weight is what one such
unit costs on the machine that measured. Weights are never negative, and are fitted to the relative errors, so that
small graphs count as much as large ones.

Example: python -m benchmarks.cost_model; with --write, the tables in docs/scale.md are made anew
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aggbuffer.text import markdown_table
from benchmarks import scale_memory

FLOAT, INDEX, POINTER = 4, 4, 8  # bytes
RESULTS = Path(__file__).parent / "results" / "scale_growth"
PAGE = Path(__file__).parents[1] / "docs" / "scale.md"


@dataclass(frozen=True)
class Sizes:
    """A graph, a model on it, and its mini-batches.

    Attributes:
        nodes: N.
        edges: E, both directions.
        features: F.
        hidden: Width of the hidden representations.
        classes: C.
        layers: How often the model aggregates.
        seeds: Of a global batch.
        fanout: In-edges sampled of a node; None for all.
    """

    nodes: int
    edges: int
    features: int
    hidden: int
    classes: int
    layers: int = 2
    seeds: int = 1024
    fanout: int | None = 10

    @property
    def degree(self) -> float:
        return self.edges / self.nodes

    @property
    def parameters(self) -> int:
        """Of the buffers: layer l reads all representations before it."""
        widths = [self.features, *[self.hidden] * (self.layers - 1), self.classes]
        return sum(sum(widths[:layer]) * widths[layer] for layer in range(1, self.layers + 1))

    def sampled(self, seeds: int | None = None) -> tuple[float, float]:
        """How many different nodes and how many edges a batch has, on average, where neighbours are drawn evenly."""
        frontier = float(self.seeds if seeds is None else seeds)
        nodes, edges = frontier, 0.0
        for _ in range(self.layers):
            drawn = frontier * min(self.degree, self.fanout or math.inf)
            edges += drawn
            reached = self.nodes * -math.expm1(-drawn / self.nodes)  # different nodes among those drawn
            frontier = reached * max(0.0, 1 - nodes / self.nodes)  # of which these are new
            nodes += frontier
        return nodes, edges

    @property
    def steps(self) -> float:
        """Of an epoch in which every node is a seed once."""
        return self.nodes / self.seeds

    def moved(self, nodes: float, edges: float) -> float:
        """Numbers that the passes of a step move over so many nodes and edges."""
        return edges * (1 + self.hidden) + nodes * (self.features + self.layers * self.hidden)

    @property
    def store_bytes(self) -> float:
        """Of the graph on disk."""
        index = INDEX if self.nodes < 2**31 else 2 * INDEX
        return self.nodes * (FLOAT * self.features + POINTER + FLOAT) + self.edges * index


Terms = Callable[[Sizes], Sequence[float]]

CACHE = 32 * 2**20  # bytes; rows of larger matrices come from memory, which costs more


def _missed(sizes: Sizes) -> float:
    """Share of the gathered rows that are in no cache."""
    return max(0.0, 1 - CACHE / (FLOAT * sizes.nodes * sizes.hidden))


TERMS: dict[str, Terms] = {
    "full step seconds": lambda s: (1, s.moved(s.nodes, s.edges), s.moved(0, s.edges) * _missed(s)),
    "full peak bytes": lambda s: (1, s.edges, s.nodes * s.hidden),
    "batch step seconds": lambda s: (1, s.moved(*s.sampled()), s.sampled()[1] * math.log2(s.nodes)),
    "batch peak bytes": lambda s: (1, s.edges, s.moved(*s.sampled())),
    "inference seconds": lambda s: (1, s.moved(s.nodes, s.edges), s.moved(0, s.edges) * _missed(s)),
    "inference peak bytes": lambda s: (1, s.edges, s.nodes * s.hidden),
}


@dataclass(frozen=True)
class Curve:
    """A fitted cost.

    Attributes:
        name: Of its terms.
        weights: One for each term.
    """

    name: str
    weights: tuple[float, ...]

    def __call__(self, sizes: Sizes) -> float:
        return float(np.dot(self.weights, TERMS[self.name](sizes)))

    @classmethod
    def fitted(cls, name: str, points: Sequence[tuple[Sizes, float]]) -> Curve:
        """The weights of least squared relative error among those that are not negative."""
        rows = np.array([TERMS[name](sizes) for sizes, _ in points], float)
        rows = rows / np.array([[value] for _, value in points])
        best, least = np.zeros(rows.shape[1]), math.inf
        for count in range(1, min(rows.shape) + 1):
            for used in itertools.combinations(range(rows.shape[1]), count):
                found = np.linalg.lstsq(rows[:, used], np.ones(len(rows)), rcond=None)[0]
                error = float(np.square(rows[:, used] @ found - 1).sum())
                if (found >= 0).all() and error < least - 1e-12:
                    best, least = np.zeros(rows.shape[1]), error
                    best[list(used)] = found
        return cls(name, tuple(best.tolist()))


@dataclass(frozen=True)
class Judged:
    """A cost predicted where it is known: the largest graph, from the others.

    Attributes:
        name: Of the cost.
        edges: Of the largest graph.
        predicted: By a curve that was fitted without it.
        measured: There.
        curve: Fitted to all points.
    """

    name: str
    edges: int
    predicted: float
    measured: float
    curve: Curve

    @property
    def error(self) -> float:
        """Relative."""
        return self.predicted / self.measured - 1


def judge(points: Sequence[Mapping[str, Any]]) -> list[Judged]:
    """Every cost of measured points, its largest graph predicted from the others; three points are the least."""
    found = []
    for name in TERMS:
        known = sorted(
            ((Sizes(**point["sizes"]), point["costs"][name]) for point in points if point["costs"].get(name)),
            key=lambda pair: pair[0].edges,
        )
        if len(known) >= 3:
            largest, value = known[-1]
            predicted = Curve.fitted(name, known[:-1])(largest)
            found.append(Judged(name, largest.edges, predicted, value, Curve.fitted(name, known)))
    return found


@dataclass(frozen=True)
class Cluster:
    """Machines alike that train together.

    Attributes:
        memory: Bytes of each.
        disk: Bytes of each; every one has the whole store.
        processes: On each machine, with as many cores each as measured.
        network: Bytes a second between two of them.
        latency: Seconds of one message round.
    """

    memory: float = 64 * 2**30
    disk: float = 4e12
    processes: int = 16
    network: float = 1e9
    latency: float = 2e-4


@dataclass(frozen=True)
class Estimate:
    """What a fit by mini-batches takes.

    Attributes:
        machines: How many.
        hours: In total.
        hours_of_validation: Of these, layer by layer after every epoch.
        memory: Bytes of a process that are its own.
        store: Bytes of the graph on disk.
        breaks_first: What is beyond a machine, or comes closest to its limit.
    """

    machines: int
    hours: float
    hours_of_validation: float
    memory: float
    store: float
    breaks_first: str


def own_memory(sizes: Sizes, processes: int = 1, baseline: float = 0.5e9) -> float:
    """Bytes of a process beside the mapped store: Python, the places of nodes in a batch, the epoch's order of seeds
    (which is made of two copies), flags, logits of the nodes, and its part of a batch, with activations kept twice.
    """
    nodes, edges = sizes.sampled(math.ceil(sizes.seeds / processes))
    batch = FLOAT * 4 * (edges + nodes * (sizes.features + 2 * sizes.layers * sizes.hidden))
    return baseline + sizes.nodes * (INDEX + 3 * POINTER + 2 + FLOAT * sizes.classes) + batch


def estimate(
    sizes: Sizes, curves: Mapping[str, Curve], cluster: Cluster, *, epochs: float, validations: int, hours: float
) -> Estimate:
    """How many machines a fit takes to be done within some hours, and what it then takes.

    Args:
        sizes: Of graph and model.
        curves: Of :func:`judge`, by name.
        cluster: What there is.
        epochs: Passes over all nodes; less than one for a graph of which a part is enough.
        validations: How often the whole validation set is judged.
        hours: Wanted.
    """
    step = curves["batch step seconds"](sizes)
    whole = curves["inference seconds"](sizes) * validations
    message = sizes.parameters * 8

    def total(machines: int) -> float:
        ranks = machines * cluster.processes
        talk = cluster.latency * math.log2(max(ranks, 2)) + 2 * message / cluster.network
        return epochs * sizes.steps * (step / ranks + (talk if ranks > 1 else 0)) + whole / ranks

    limit = 2**20
    machines = next((m for m in (2**i for i in range(21)) if total(m) <= 3600 * hours), limit)
    memory = own_memory(sizes, machines * cluster.processes)
    loads = {
        "memory of a machine": memory * cluster.processes / cluster.memory,
        "disk of a machine": sizes.store_bytes / cluster.disk,
        "time, which more machines do not shorten": total(machines) / (3600 * hours),
    }
    return Estimate(
        machines,
        total(machines) / 3600,
        whole / (machines * cluster.processes) / 3600,
        memory,
        sizes.store_bytes,
        max(loads, key=lambda name: loads[name]),
    )


PAPERS100M = Sizes(111_059_956, 1_615_685_872, features=128, hidden=256, classes=172, seeds=65_536)
HUNDRED_BILLION = Sizes(5_000_000_000, 100_000_000_000, features=128, hidden=256, classes=172, seeds=262_144)


def kept(folder: Path = RESULTS) -> list[dict[str, Any]]:
    """The points that ``benchmarks.scale_growth`` has measured."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def table(points: Sequence[Mapping[str, Any]]) -> str:
    """How well the largest graph is predicted, and what follows for two that are larger."""
    judged = judge(points)
    rows = [
        [j.name, f"{j.edges:,}", f"{j.predicted:.4g}", f"{j.measured:.4g}", f"{100 * j.error:+.1f} %"] for j in judged
    ]
    told = [markdown_table(["cost", "edges", "predicted", "measured", "error"], rows)]
    curves = {j.name: j.curve for j in judged}
    if {"batch step seconds", "inference seconds"} <= set(curves):
        rows = []
        for name, sizes, epochs in (("ogbn-papers100M", PAPERS100M, 10.0), ("10^11 edges", HUNDRED_BILLION, 1.0)):
            e = estimate(sizes, curves, Cluster(), epochs=epochs, validations=10, hours=24)
            rows.append(
                [
                    name,
                    f"{epochs:g}",
                    f"{e.machines:,}",
                    f"{e.hours:.1f}",
                    f"{e.memory / 2**30:.1f}",
                    f"{e.store / 1e9:,.0f}",
                    e.breaks_first,
                ]
            )
        headers = ["graph", "epochs", "machines", "hours", "GiB a process", "GB on disk", "breaks first"]
        told.append(markdown_table(headers, rows))
    return "\n\n".join(told)


def written(page: str) -> str:
    """The page with the tables as the committed results have them."""
    begin, end = "<!-- begin: python -m benchmarks.cost_model --write -->", "<!-- end -->"
    before, rest = page.split(begin)
    return f"{before}{begin}\n{scale_memory.table()}\n\n{table(kept())}\n{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(written(PAGE.read_text()))
    else:
        print(table(kept()))
