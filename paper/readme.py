"""Regenerate the tables in ``paper/README.md`` from the committed results."""

from __future__ import annotations

import re
from pathlib import Path

from paper import bars, recipes, render
from paper.definitions import TABLES
from paper.store import Store
from paper.tables import fill

PAGE = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- begin: python -m paper readme -->", "<!-- end -->"


def write(store: Store) -> Path:
    """Put the current tables between the markers."""
    PAGE.write_text(current(PAGE.read_text(), store))
    return PAGE


def current(page: str, store: Store) -> str:
    """The page with what is between the markers as the results are now."""
    between = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", flags=re.DOTALL)
    if len(between.findall(page)) != 1:
        raise ValueError(f"{PAGE.name} must hold {BEGIN!r} and {END!r} once")
    return between.sub(lambda _: f"{BEGIN}\n\n{_body(store)}\n\n{END}", page)


def _body(store: Store) -> str:
    parts = ["### bars", "`python -m paper bars`", bars.report(store)]
    parts += ["### recipes", "`python -m paper recipes`", recipes.report(store)]
    for table in TABLES.values():
        parts += [f"### {table.name}", f"{table.title}: `python -m paper run {table.name}`"]
        parts.append(render.markdown(fill(table, store)))
    return "\n\n".join(parts)
