"""The paper's tables as data: which methods on which graphs, judged how, set beside which published numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from paper.units import Changes, Unit, Value

HERE = ("Cora", "CiteSeer", "PubMed", "Photo", "CS", "Chameleon")
TWELVE = (
    "Cora", "CiteSeer", "PubMed", "WikiCS", "Photo", "Computers", "CS", "Physics", "ogbn-arxiv", "Actor", "Squirrel",
    "Chameleon",
)  # fmt: skip
FOUR = ("PubMed", "CS", "ogbn-arxiv", "Chameleon")
LARGE = ("Flickr", "ogbn-arxiv", "Reddit")

ABSENT = "its files were not to be had where these results were made"
WHY_ABSENT = {name: ABSENT for name in (*TWELVE, *LARGE) if name not in HERE}

GROUPS = ("overall", "head", "tail", "homophilous", "heterophilous")
REMOVAL = ("keep 1.0", "keep 0.75", "keep 0.5", "keep 0.25", "keep 0.0")


@dataclass(frozen=True)
class Line:
    """One line of a table.

    Attributes:
        label: As printed.
        method: What runs.
        published: The line of the published table to set beside it, if there is one.
        changes: What differs from the paper's settings of the graph.
        group: Lines that compete for being the best; by default all of a table do.
        splits: Fewer splits than the table's, by graph.
    """

    label: str
    method: str
    published: str | None = None
    changes: Mapping[str, Value] = field(default_factory=dict)
    group: str = ""
    splits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """One table of the paper, or one like it.

    Attributes:
        name: Of the command.
        title: What it shows.
        lines: Top to bottom.
        datasets: Left to right.
        metrics: One section each.
        splits: How many are run here.
        published: Files of published numbers.
        published_splits: How many runs the paper averages over.
        ranked: Whether the paper gives average ranks.
        notes: What to know when reading it.
    """

    name: str
    title: str
    lines: tuple[Line, ...]
    datasets: tuple[str, ...]
    metrics: tuple[str, ...] = ("overall",)
    splits: int = 5
    published: tuple[str, ...] = ()
    published_splits: int = 10
    ranked: bool = False
    notes: tuple[str, ...] = ()

    def units(
        self, datasets: Iterable[str], methods: Iterable[str] | None = None, splits: int | None = None
    ) -> Iterator[Unit]:
        """What the table needs: split by split, so that every cell has something early; each unit once."""
        chosen, asked, seen = list(datasets), None if methods is None else set(methods), set[Unit]()
        for split in range(splits or self.splits):
            # Methods outside, graphs inside: neighbours in the queue seldom want the same base model at once.
            for line in self.lines:
                for dataset in chosen:
                    fewer = line.splits.get(dataset, split + 1)
                    unit = Unit.of(dataset, line.method, split, line.changes)
                    wanted = dataset in self.datasets and (asked is None or line.method in asked)
                    if wanted and (splits is not None or split < fewer) and unit not in seen:
                        seen.add(unit)
                        yield unit


_LONG = dict.fromkeys(("PubMed", "Photo", "CS"), 3)  # GraphPatcher takes hours on these
BASELINES = (
    Line("MLP", "MLP", "MLP"),
    Line("GCN", "GCN", "GCN"),
    Line("DropEdge", "DropEdge", "DropEdge"),
    Line("DropNode", "DropNode", "DropNode"),
    Line("DropMessage", "DropMessage", "DropMessage"),
    Line("TUNEUP", "TUNEUP", "TUNEUP"),
    Line("GraphPatcher", "GraphPatcher", "GraphPatcher", splits=_LONG),
)
RECIPES = (
    Line("GCN_B, paper's text", "GCN_B paper", "GCN_B"),
    Line("GCN_B, authors' code", "GCN_B reference", "GCN_B"),
    Line("GCN_B, library's default", "GCN_B default", "GCN_B"),
)


def _pair(label: str, changes: Mapping[str, Value], buffered: Mapping[str, Value] | None = None) -> tuple[Line, Line]:
    """A base and its buffer under one and the same change."""
    beside = {**changes, **(buffered or {})}
    return (
        Line(f"GCN, {label}", "GCN", f"GCN {label}", changes, label),
        Line(f"GCN_B, {label}", "GCN_B paper", f"GCN_B {label}", beside, label),
    )


def _architecture(name: str) -> tuple[Line, Line]:
    changes = {"architecture": name.lower()}
    return (
        Line(name, "GCN", name, changes, name),
        Line(f"{name}_B", "GCN_B paper", f"{name}_B", changes, name),
    )


def _depth(layers: int) -> tuple[Line, ...]:
    base: dict[str, Value] = {"layers": layers, "hidden": 256, "lr": 1e-3}
    buffer: dict[str, Value] = {"buffer.strength": 1.0, "buffer.drop_edge": 0.5}
    label = f"{layers} layers"
    return (
        *_pair(label, base, buffer),
        Line(f"DropEdge, {label}", "DropEdge", f"DropEdge {label}", {**base, "drop": 0.5}, f"{label} DropEdge"),
        Line(
            f"DropEdge_B, {label}",
            "DropEdge_B",
            f"DropEdge_B {label}",
            {**base, **buffer},
            f"{label} DropEdge",
        ),
    )


_ALIKE: dict[str, Value] = {"hidden": 256, "lr": 1e-3, "dropout": 0.5}
_LARGE_LINES = (
    Line("GCN", "GCN", "GCN", _ALIKE),
    Line("GCN_B", "GCN_B paper", "GCN_B", {**_ALIKE, "buffer.strength": 1.0, "buffer.drop_edge": 0.5}),
)

TABLES = {
    table.name: table
    for table in (
        Table(
            "main", "Accuracy of all methods, overall and by degree", (*BASELINES, *RECIPES), TWELVE,
            ("overall", "head", "tail"), 10, ("main",),
        ),
        Table(
            "disparity", "Accuracy by agreement of the neighbours' labels", (*BASELINES, *RECIPES), TWELVE,
            ("homophilous", "heterophilous"), 10, ("disparity",),
        ),
        Table(
            "removal", "Accuracy as edges are removed at test time",
            (BASELINES[1], BASELINES[2], *RECIPES), TWELVE, REMOVAL, 10, ("removal",),
        ),
        Table(
            "architectures", "Other architectures with and without buffers",
            tuple(line for name in ("SAGE", "GAT", "SGC", "GIN") for line in _architecture(name)), FOUR,
            published=("architectures",),
        ),
        Table(
            "blocks", "Other blocks in the buffer's place",
            (
                Line("GCN", "GCN", "GCN"),
                Line("AGG", "AGG", "AGG"),
                Line("Residual", "Residual", "Residual"),
                Line("JKNet-style", "JKNet", "JKNet"),
                Line("AGG_B (single)", "single", "single"),
                Line("AGG_B", "GCN_B paper", "AGG_B"),
            ),
            TWELVE, published=("blocks",), ranked=True,
        ),
        Table(
            "losses", "Other losses",
            (
                Line("Pseudo-label", "pseudo-label", "pseudo-label"),
                Line("Self-distillation", "self-distillation", "self-distillation"),
                Line("Cross-entropy", "cross-entropy", "cross-entropy"),
                Line("L_RC, training nodes", "L_RC train", "L_RC train"),
                Line("L_RC", "GCN_B paper", "L_RC"),
            ),
            FOUR, published=("losses",),
        ),
        Table(
            "hyperparameters", "Depth, width and activation of the base",
            (
                *(line for n in (2, 4, 6, 8) for line in _pair(f"{n} layers", {"layers": n})),
                *(line for n in (64, 128, 256, 512) for line in _pair(f"{n} wide", {"hidden": n})),
                *(line for a in ("ReLU", "ELU", "Sigmoid", "Tanh") for line in _pair(a, {"activation": a.lower()})),
            ),
            ("PubMed", "ogbn-arxiv"), splits=3, published=("hyperparameters",),
        ),
        Table(
            "components", "Without one of the components",
            (
                Line("GCN_B", "GCN_B paper", "GCN_B"),
                Line("minus freezing", "minus freezing", "minus freezing"),
                Line("minus AGG_B", "minus block", "minus block"),
                Line("minus pre-training", "minus pre-training", "minus pre-training"),
            ),
            FOUR, published=("components",),
        ),
        Table(
            "depth", "Deep GCNs, with and without DropEdge and buffers",
            tuple(line for layers in (4, 8, 12, 16, 20) for line in _depth(layers)),
            ("Cora", "PubMed", "Computers", "CS", "Squirrel", "Chameleon"), splits=3, published=("depth",),
        ),
        Table("large", "Larger graphs", _LARGE_LINES, LARGE, GROUPS, 5, ("large",), 5),
        Table(
            "large-removal", "Larger graphs as edges are removed", _LARGE_LINES, LARGE,
            REMOVAL, 5, ("large-removal",), 5,
        ),
        Table(
            "deviations", "What each departure of the authors' code from the paper does",
            (
                Line("GCN", "GCN", "GCN"),
                Line("GCN_B, paper's text", "GCN_B paper", "GCN_B"),
                Line("+ bias", "departure bias"),
                Line("+ self-loops dropped and doubled", "departure self-loops"),
                Line("+ directions drawn independently", "departure directions"),
                Line("+ LayerNorm trained along", "departure norms"),
                Line("all of them", "GCN_B reference", "GCN_B"),
                Line("the library's default", "GCN_B default", "GCN_B"),
            ),
            HERE, ("overall", "tail", "heterophilous", "keep 0.0"), 3,
            ("main", "disparity", "removal"),
            notes=(
                "Published means are of ten splits.",
                "LayerNorm is part of the base for Chameleon alone; elsewhere that departure changes nothing.",
            ),
        ),
    )
}  # fmt: skip


def home(unit: Unit) -> str:
    """The folder of a unit: the first table that needs it. Tables that share a unit share its file."""
    if unit.search:
        return "search"
    if unit.method.startswith("figure "):
        return "figures"
    return _homes(unit.dataset).get((unit.method, unit.changes), "other")


@cache
def _homes(dataset: str) -> dict[tuple[str, Changes], str]:
    """The first table that needs each method and variant on a graph."""
    homes: dict[tuple[str, Changes], str] = {}
    for table in TABLES.values():
        for line in table.lines if dataset in table.datasets else ():
            homes.setdefault((line.method, Unit.of(dataset, line.method, 0, line.changes).changes), table.name)
    return homes
