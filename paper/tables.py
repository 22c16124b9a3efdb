"""Fill a table from the committed results, beside what was published."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from paper import published
from paper.definitions import WHY_ABSENT, Line, Table
from paper.statistics import deviation, mean, ranks
from paper.store import Store
from paper.units import Unit


@dataclass(frozen=True)
class Cell:
    """One method on one graph; everything in percent.

    Attributes:
        mean: Over the splits that were measured; NaN if none was.
        deviation: Over the same.
        splits: How many.
        published: Mean and deviation in the paper.
        picked: Whether hyperparameters came from a search on one split.
        best: Whether no line of its group prints a higher mean.
    """

    mean: float
    deviation: float
    splits: int
    published: tuple[float, float] | None
    picked: bool = False
    best: bool = False

    @property
    def difference(self) -> float:
        """Ours minus published; NaN without either."""
        return self.mean - self.published[0] if self.published else math.nan

    @property
    def within(self) -> bool | None:
        """Whether ours is no further off than the published deviation."""
        if self.published is None or not self.splits:
            return None
        return abs(self.difference) <= self.published[1]


@dataclass(frozen=True)
class Row:
    """One line of a section: its cells by graph, and average ranks where the paper has them."""

    line: Line
    cells: dict[str, Cell]
    rank: float = math.nan
    published_rank: float | None = None


@dataclass(frozen=True)
class Section:
    """One metric of a table."""

    metric: str
    rows: list[Row]


@dataclass(frozen=True)
class Filled:
    """A table with numbers.

    Attributes:
        table: Its definition.
        datasets: The graphs with any result.
        sections: One a metric.
        absent: Why the other graphs have none.
    """

    table: Table
    datasets: list[str]
    sections: list[Section]
    absent: dict[str, str] = field(default_factory=dict)

    @property
    def picked(self) -> bool:
        """Whether any line's hyperparameters came from a search here."""
        return any(cell.picked for s in self.sections for row in s.rows for cell in row.cells.values())


def fill(table: Table, store: Store) -> Filled:
    """Read every result of a table and set it beside the published one."""
    results = {
        (line.label, dataset): list(store.all_splits(Unit.of(dataset, line.method, 0, line.changes)).values())
        for line in table.lines
        for dataset in table.datasets
    }
    measured = [dataset for dataset in table.datasets if any(results[line.label, dataset] for line in table.lines)]
    absent = {d: WHY_ABSENT.get(d, "not measured yet") for d in table.datasets if d not in measured}
    sections = []
    for metric in table.metrics:
        rows = [
            Row(line, {d: _cell(results[line.label, d], table, metric, line, d) for d in measured})
            for line in table.lines
        ]
        rows = _with_best(rows, measured)
        sections.append(Section(metric, _with_ranks(rows, measured, table) if table.ranked else rows))
    return Filled(table, measured, sections, absent)


def accuracy(result: dict[str, Any], metric: str) -> float:
    """A metric of one result in percent: a group's name, or ``"keep <share>"``."""
    test = result["test"]
    score = test["edge_removal"][metric.removeprefix("keep ")] if metric.startswith("keep ") else test[metric]
    return 100.0 * score["accuracy"]


def _cell(results: Sequence[dict[str, Any]], table: Table, metric: str, line: Line, dataset: str) -> Cell:
    values = [accuracy(result, metric) for result in results]
    beside = published.value(table.published, metric, line.published, dataset)
    picked = any(result.get("picked") for result in results)
    return Cell(mean(values), deviation(values), len(values), beside, picked)


def _with_best(rows: list[Row], datasets: Sequence[str]) -> list[Row]:
    highest: dict[tuple[str, str], float] = {}
    for row in rows:
        for dataset in datasets:
            key, value = (row.line.group, dataset), row.cells[dataset].mean
            if not math.isnan(value):
                highest[key] = max(highest.get(key, -math.inf), round(value, 2))

    def marked(row: Row, dataset: str) -> Cell:
        cell = row.cells[dataset]
        best = round(cell.mean, 2) == highest.get((row.line.group, dataset)) if cell.splits else False
        return Cell(cell.mean, cell.deviation, cell.splits, cell.published, cell.picked, best)

    return [Row(row.line, {d: marked(row, d) for d in datasets}) for row in rows]


def _with_ranks(rows: list[Row], datasets: Sequence[str], table: Table) -> list[Row]:
    """Average ranks over the graphs on which every line was measured."""
    complete = [d for d in datasets if all(row.cells[d].splits for row in rows)]
    by_dataset = [ranks([round(row.cells[d].mean, 2) for row in rows]) for d in complete]
    return [
        Row(row.line, row.cells, mean([r[i] for r in by_dataset]), published.rank(table.published, row.line.published))
        for i, row in enumerate(rows)
    ]
