"""A filled table as markdown, LaTeX or JSON."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from aggbuffer.text import markdown_table
from paper.store import as_text
from paper.tables import Cell, Filled, Row, Section

PICKED = "hyperparameters picked on the validation accuracy of one split"
NAMES = {
    "overall": "All test nodes", "head": "Head nodes (third of highest degree)",
    "tail": "Tail nodes (third of lowest degree)", "homophilous": "Homophilous nodes",
    "heterophilous": "Heterophilous nodes",
}  # fmt: skip


def metric_name(metric: str) -> str:
    """A metric in words."""
    if metric.startswith("keep "):
        return f"{100 * float(metric.removeprefix('keep ')):g} % of the edges"
    return NAMES[metric]


def markdown(filled: Filled) -> str:
    """Two rows a line: ours, and the published number with our difference from it."""
    parts = [_markdown_section(section, filled) for section in filled.sections] if filled.datasets else []
    if filled.absent:
        parts.append(markdown_table(["graph", "why it is not here"], [list(pair) for pair in filled.absent.items()]))
    return "\n\n".join([*parts, *(f"{note}" for note in _notes(filled))])


def _notes(filled: Filled) -> list[str]:
    notes = list(filled.table.notes)
    if filled.datasets:
        legend = "Mean ± standard deviation in percent (splits measured). Below each: what was published "
        legend += f"({filled.table.published_splits} runs), our difference, and ✓ where that is within the published "
        notes.insert(0, legend + "deviation. Bold: the best of those that compete.")
    if filled.picked:
        notes.append(f"† {PICKED}.")
    return notes


def _markdown_section(section: Section, filled: Filled) -> str:
    ranked = filled.table.ranked
    headers = [metric_name(section.metric), *filled.datasets, *(["rank"] if ranked else [])]
    rows = []
    for row in section.rows:
        ours = [_ours(row.cells[d], "**{}**") for d in filled.datasets]
        rows.append([_label(row), *ours, *([_number(row.rank)] if ranked else [])])
        if row.line.published:
            beside = [_beside(row.cells[d]) for d in filled.datasets]
            rows.append(["· published", *beside, *([_number(row.published_rank)] if ranked else [])])
    return markdown_table(headers, rows)


def latex(filled: Filled) -> str:
    """The same for a paper: a ``tabular`` a metric; needs booktabs and amssymb."""
    return "\n\n".join(_latex_section(section, filled) for section in filled.sections)


def _latex_section(section: Section, filled: Filled) -> str:
    ranked = filled.table.ranked
    lines = [
        f"% {filled.table.title}: {metric_name(section.metric)}",
        rf"\begin{{tabular}}{{l{'c' * (len(filled.datasets) + ranked)}}}",
        r"\toprule",
        " & ".join(["", *filled.datasets, *(["Rank"] if ranked else [])]) + r" \\",
        r"\midrule",
    ]
    for row in section.rows:
        ours = [_latex_ours(row.cells[d]) for d in filled.datasets]
        lines.append(" & ".join([_latex_text(_label(row)), *ours, *([_number(row.rank)] if ranked else [])]) + r" \\")
        if row.line.published:
            beside = [_latex_beside(row.cells[d]) for d in filled.datasets]
            rank = [_number(row.published_rank)] if ranked else []
            lines.append(" & ".join([r"\quad published", *beside, *rank]) + r" \\")
    lines += [rf"\multicolumn{{{len(filled.datasets) + 1}}}{{l}}{{{d}: {why}}} \\" for d, why in filled.absent.items()]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def as_json(filled: Filled) -> str:
    """Every number of the table, for machines."""
    sections = {
        section.metric: {row.line.label: {d: _plain(row.cells[d]) for d in filled.datasets} for row in section.rows}
        for section in filled.sections
    }
    result: dict[str, Any] = {"table": filled.table.name, "values": sections, "absent": filled.absent}
    if filled.table.ranked:
        result["ranks"] = {
            row.line.label: {"ours": _finite(row.rank), "published": row.published_rank}
            for row in filled.sections[0].rows
        }
    return as_text(result).rstrip()


FORMATS: dict[str, Callable[[Filled], str]] = {"markdown": markdown, "latex": latex, "json": as_json}


def _label(row: Row) -> str:
    return row.line.label + (" †" if any(cell.picked for cell in row.cells.values()) else "")


def _ours(cell: Cell, bold: str) -> str:
    if not cell.splits:
        return "–"
    middle = f"{cell.mean:.2f}"
    middle = bold.format(middle) if cell.best else middle
    return middle + ("" if math.isnan(cell.deviation) else f" ± {cell.deviation:.2f}") + f" ({cell.splits})"


def _beside(cell: Cell) -> str:
    if cell.published is None:
        return "–"
    told = f"{cell.published[0]:.2f} ± {cell.published[1]:.2f}"
    if cell.within is None:
        return told
    return f"{told}, {_signed(cell.difference)} {'✓' if cell.within else '✗'}"


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _number(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.2f}"


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)


def _latex_ours(cell: Cell) -> str:
    if not cell.splits:
        return "--"
    middle = rf"\mathbf{{{cell.mean:.2f}}}" if cell.best else f"{cell.mean:.2f}"
    spread = "" if math.isnan(cell.deviation) else rf"_{{\pm {cell.deviation:.2f}}}"
    return f"${middle}{spread}$ ({cell.splits})"


def _latex_beside(cell: Cell) -> str:
    if cell.published is None:
        return "--"
    told = rf"{cell.published[0]:.2f}_{{\pm {cell.published[1]:.2f}}}"
    if cell.within is None:
        return f"${told}$"
    mark = r"\checkmark" if cell.within else r"\times"
    return f"${told}$, ${cell.difference:+.2f}$ ${mark}$"


def _latex_text(text: str) -> str:
    return text.replace("_", r"\_").replace("†", r"$^\dagger$").replace("%", r"\%")


def _plain(cell: Cell) -> dict[str, Any]:
    return {
        "mean": _finite(cell.mean),
        "deviation": _finite(cell.deviation),
        "splits": cell.splits,
        "published": cell.published,
        "difference": _finite(cell.difference),
        "within_published_deviation": cell.within,
        "best": cell.best,
        "picked_on_one_split": cell.picked,
    }
