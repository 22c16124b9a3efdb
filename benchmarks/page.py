"""Regenerate the tables in ``docs/performance.md`` from the committed results."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from benchmarks import end_to_end, plots, results, tables
from benchmarks.machine import Machine

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- begin: python -m benchmarks table --write -->", "<!-- end -->"

TITLES = {
    "step": "A training step of the buffers",
    "end_to_end": "A whole fit",
    "inference": "Inference",
    "base": "A training step of the base GCN",
    "memory": "Peak memory of a training process",
    "scaling": "Growing graphs",
}
_SHOWN: dict[str, Callable[[results.Results], str]] = {
    "memory": tables.memory,
    "scaling": tables.scaling,
    "end_to_end": end_to_end.table,
}
_PICTURES = {"step": plots.STEP, "scaling": plots.SCALING}


def write(folder: Path = results.RESULTS) -> Path:
    """Put the current tables between the markers."""
    PAGE.write_text(current(PAGE.read_text(), folder))
    return PAGE


def current(page: str, folder: Path = results.RESULTS) -> str:
    """The page with what is between the markers as the results are now."""
    between = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", flags=re.DOTALL)
    if len(between.findall(page)) != 1:
        raise ValueError(f"{PAGE.name} must hold {BEGIN!r} and {END!r} once")
    return between.sub(lambda _: f"{BEGIN}\n\n{body(folder)}\n\n{END}", page)


def body(folder: Path = results.RESULTS, *, pictures: bool = True) -> str:
    """All that has been measured."""
    parts: list[str] = []
    found = {command: results.every(command, folder) for command in TITLES}
    for command, measured in found.items():
        if measured:
            parts += [f"### {TITLES[command]}", f"`python -m benchmarks {command.replace('_', '-')}`"]
            if pictures and command in _PICTURES:
                parts.append(f"![{TITLES[command]}](assets/{_PICTURES[command]})")
            parts.append(_SHOWN.get(command, tables.times)(measured))
    if limits := machine(folder):
        if found["step"]:
            parts += ["### How far a step is from a lower bound", tables.bounds(found["step"], limits)]
        parts += ["### The machine's own limits", "`python -m benchmarks machine`", tables.machine(limits)]
    everything = [result for measured in found.values() for result in measured]
    if everything:
        parts += ["### Where it was measured", tables.environments(everything)]
    return "\n\n".join(parts) or "Nothing has been measured yet."


def machine(folder: Path = results.RESULTS) -> Machine | None:
    """The machine's limits, if they have been measured."""
    path = folder / "machine.json"
    return Machine.of(json.loads(path.read_text())) if path.exists() else None
