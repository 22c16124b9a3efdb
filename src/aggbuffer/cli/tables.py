"""Results as tables of at most 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from aggbuffer.text import percent

if TYPE_CHECKING:
    from aggbuffer.compare import Comparison
    from aggbuffer.diagnose import Diagnosis
    from aggbuffer.evaluate import Evaluation

_ANY_WIDTH = 10_000


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None, *, words: int = 1) -> Fitted:
    """A plain table.

    Args:
        headers: Of the columns.
        rows: Their cells.
        title: Above it.
        words: How many columns, from the left, are words; the others are numbers and aligned as such.
    """
    return Fitted(headers, rows, title, words)


@dataclass(frozen=True)
class Fitted:
    """A table that never breaks a cell: where columns are scarce, headers wrap, then gaps shrink, then rows stack.

    Attributes:
        headers: Of the columns.
        rows: Their cells.
        title: Above it.
        words: How many columns, from the left, are words.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str | None
    words: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield Text(self.title, style="bold")
        folded = [_folded(header, column) for header, *column in zip(self.headers, *self.rows, strict=True)]
        for headers, gap in ((self.headers, 3), (folded, 3), (folded, 2), (folded, 1)):
            made = self._side_by_side(headers, gap)
            if console.measure(made, options=options.update(max_width=_ANY_WIDTH)).maximum <= options.max_width:
                yield made
                return
        for i, row in enumerate(self.rows):
            yield from [Text("")] * (i > 0)
            yield facts(list(zip((header.replace("\n", " ") for header in self.headers), row, strict=True)))

    def _side_by_side(self, headers: Sequence[str], gap: int) -> Table:
        # The box itself takes one column between two others.
        made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0))
        for i, header in enumerate(headers):
            made.add_column(header, justify="left" if i < self.words else "right", no_wrap=True, vertical="bottom")
        for row in self.rows:
            made.add_row(*row)
        return made


def _folded(header: str, cells: Sequence[str]) -> str:
    """A header in as many lines as make it no wider than its cells, words kept whole."""
    return "\n".join(textwrap.wrap(header, max([1, *map(len, cells)]), break_long_words=False, break_on_hyphens=False))


def facts(rows: Sequence[tuple[str, str]]) -> Table:
    """Names and values."""
    made = Table(box=None, show_header=False, pad_edge=False)
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def comparison_table(comparison: Comparison) -> Fitted:
    """Scores before and after."""
    interval = f"{percent(comparison.level)} interval"
    if comparison.task == "regression":
        rows = [
            [d.name, f"{d.before.rmse:.4g}", f"{d.after.rmse:.4g}", str(d.before.count)] for d in comparison.differences
        ]
        return table(["nodes", "RMSE before", "after", "count"], rows)
    return table(
        ["nodes", "before", "after", "points", interval, "count"],
        [
            [
                d.name,
                percent(d.before.accuracy, 2),
                percent(d.after.accuracy, 2),
                f"{100 * d.accuracy.difference:+.2f}",
                f"{100 * d.accuracy.low:+.2f} to {100 * d.accuracy.high:+.2f}",
                str(d.before.count),
            ]
            for d in comparison.differences
        ],
    )


def evaluation_table(evaluation: Evaluation) -> Fitted:
    """Scores of one model."""
    rows = [(name, score) for name, score in evaluation.rows() if score.count]
    if evaluation.task == "regression":
        return table(["nodes", "RMSE", "count"], [[name, f"{s.rmse:.4g}", str(s.count)] for name, s in rows])
    return table(
        ["nodes", "accuracy", "macro-F1", "count"],
        [[name, percent(s.accuracy, 2), percent(s.macro_f1, 2), str(s.count)] for name, s in rows],
    )


def diagnosis_tables(diagnosis: Diagnosis) -> list[Fitted]:
    """What moves when edges go, by degree and by layer."""
    changed = "outputs move" if diagnosis.task == "regression" else "predictions change"
    flips = [
        [percent(share), *(percent(value, 1) for value in (f.overall, f.low, f.high)), _gain(diagnosis, share)]
        for share, f in diagnosis.flips.items()
    ]
    layers = [
        [x.name or x.layer, x.layer, *(f"{value:.3g}" for value in (x.c1, x.c2, x.input, x.output))]
        for x in diagnosis.layers
    ]
    return [
        table(["edges kept", changed, "low degree", "high degree", "expected gain"], flips),
        table(
            ["layer", "type", "C1", "C2", "input moves", "output moves"],
            layers,
            f"Layers, {percent(diagnosis.drop_edge)} of the edges dropped",
            words=2,
        ),
    ]


def _gain(diagnosis: Diagnosis, share: float) -> str:
    return f"{diagnosis.expected_gain[share]:+.1f} points" if share in diagnosis.expected_gain else "–"
