"""From what ``run.json`` holds to one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jinja2

from aggbuffer.config import PathLike
from aggbuffer.files import write_bytes
from aggbuffer.report.charts import removal_chart, training_charts
from aggbuffer.report.told import Told, number, share, size

_GROUPS = {
    "overall": ("All test nodes", ""),
    "head": ("Many neighbours", "head third by degree, "),
    "tail": ("Few neighbours", "tail third by degree, "),
    "homophilous": ("Neighbours mostly alike", "homophilous third, "),
    "heterophilous": ("Neighbours mostly different", "heterophilous third, "),
}


def write_report(path: PathLike, record: Mapping[str, Any]) -> None:
    """Write the report of a run; the file appears whole or not at all.

    Args:
        path: Where to.
        record: What :meth:`Run.to_dict` returned, or ``run.json`` read back.

    Raises:
        BufferFileError: If the file cannot be written.
    """
    write_bytes(render(record).encode(), path)


def render(record: Mapping[str, Any]) -> str:
    """The page as text."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("aggbuffer.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "share": share, "size": size}
    return environment.get_template("page.html.jinja").render(
        run=record, **_compared(record["comparison"]), charts=training_charts(record["fit"]), facts=_facts(record)
    )


def _compared(comparison: Mapping[str, Any] | None) -> dict[str, Any]:
    """The parts of the page that need labels."""
    if comparison is None:
        return {"headlines": [], "summary": "", "removal": [], "removal_chart": None, "groups": [], "measure": ""}
    rows = [Told.of(row, comparison["task"]) for row in comparison["differences"]]
    removal = [row for row in rows if row.kept is not None]
    groups = [(*_GROUPS[row.name], row) for row in rows if row.name in _GROUPS]
    return {
        "headlines": [row for row in removal if row.kept in (1.0, 0.5)],
        "summary": _summary(removal, [row for row in rows if row.name in ("head", "tail")]),
        "removal": removal,
        "removal_chart": removal_chart(removal),
        "groups": groups,
        "measure": rows[0].measure,
    }


def _summary(removal: list[Told], by_degree: list[Told]) -> str:
    """What the numbers say, in words."""
    sentences = []
    for row in removal:
        where = {1.0: "With every edge in place", 0.5: "With half of the edges gone"}.get(row.kept or 0.0)
        if where:
            sentences.append(f"{where}, the buffer {row.in_words()}.")
    gained = sorted((row for row in by_degree if row.clear and row.better), key=lambda row: row.gain)
    if gained and len(by_degree) == 2:
        who = "few" if gained[-1].name == "tail" else "many"
        sentences.append(f"On the full graph, nodes with {who} neighbours gain most ({gained[-1].change}).")
    return " ".join(sentences)


def _facts(record: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """What someone else needs to know in order to get the same numbers."""
    graph, base, buffer, fit = record["graph"], record["base"], record["buffer"], record["fit"]
    layers = ", ".join(layer["class"] for layer in base["layers"])
    kind = "undirected" if graph["undirected"] else "directed"
    return [
        (
            "What was fitted",
            [
                ("Graph", f"{graph['nodes']:,} nodes, {graph['edges']:,} {kind} edges, {graph['features']:,} features"),
                ("Base model", f"{base['class']} ({layers})"),
                ("Fingerprint of the base", base["fingerprint"]),
                ("Seed", str(fit["config"]["seed"])),
                ("Stopped by", f"{fit['stopped']}, after {len(fit['history'])} epochs"),
                ("Kept", f"epoch {fit['best_epoch']}, the best on {fit['monitor']}"),
            ],
        ),
        ("Training", _settings(fit["config"], leave_out=("seed",))),
        ("Buffer", _settings(buffer["config"])),
        (
            "Versions and machine",
            [
                *((name, value) for name, value in record["versions"].items()),
                *((name, str(value)) for name, value in record["machine"].items()),
            ],
        ),
    ]


def _settings(config: Mapping[str, Any], leave_out: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in config.items() if name not in leave_out]
