"""Tables and numbers as text."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence

from aggbuffer.errors import ConfigError


def percent(share: float, digits: int = 0) -> str:
    """``0.5`` as ``50 %``; a dash for NaN."""
    return "–" if math.isnan(share) else f"{100 * share:.{digits}f} %"


def bytes_of(amount: str) -> int:
    """``"4GiB"``, ``"500 MB"`` or ``"1000"`` as a number of bytes."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?))?b?\s*", amount, re.IGNORECASE)
    if found is None or float(found[1]) == 0:
        raise ConfigError(f"{amount!r} is no amount of memory; expected one such as 4GiB or 500MB.")
    power = 0 if found[2] is None else "kmgt".index(found[2].lower()) + 1
    return int(float(found[1]) * (1024 if found[3] else 1000) ** power)


def markdown_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table: first column to the left, the others to the right, aligned for reading as plain text."""
    widths = [max(len(line[i]) for line in [headers, *rows]) for i in range(len(headers))]
    rule = [":" + "-" * (widths[0] + 1), *("-" * (width + 1) + ":" for width in widths[1:])]

    def line(cells: Sequence[str]) -> str:
        padded = [cells[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(cells[1:], widths[1:], strict=True))]
        return "| " + " | ".join(padded) + " |"

    return "\n".join([line(headers), "|" + "|".join(rule) + "|", *(line(row) for row in rows)])


def html_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same as HTML, for notebooks."""
    head = "".join(f"<th scope='col'>{html.escape(cell)}</th>" for cell in headers)
    body = "".join(
        "<tr>"
        + f"<th scope='row' style='text-align:left'>{html.escape(row[0])}</th>"
        + "".join(f"<td style='text-align:right'>{html.escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
