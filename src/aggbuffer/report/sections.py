"""From one record to what the page says, section by section; whatever cannot be said is a sentence that says why."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from aggbuffer.report.charts import bin_charts, ratio, removal_chart, term_charts, training_charts
from aggbuffer.report.facts import facts
from aggbuffer.report.told import Told, gone, share
from aggbuffer.report.trust import caveats, held_out

_GROUPS = {
    "overall": ("All test nodes", ""),
    "head": ("Many neighbours", "head third by degree, "),
    "tail": ("Few neighbours", "tail third by degree, "),
    "homophilous": ("Neighbours mostly alike", "homophilous third, "),
    "heterophilous": ("Neighbours mostly different", "heterophilous third, "),
}
_COLUMNS = ("node", "degree", "agreement", "true", "before", "after")


def sections(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Everything that the template needs about one run.

    Args:
        record: As :func:`aggbuffer.report.reading.checked` returned it.
        prefix: Of every id, so that several runs can share a page.
    """
    kept = round(1.0 - record["edge_loss"], 10)
    rows = _rows(record)
    removal = [row for row in rows if row.kept is not None]
    bins, turned = _bins(record, kept, prefix), _flips(record["flips"])
    return {
        "run": record,
        "prefix": prefix,
        "kept": kept,
        "headlines": headlines(record),
        "unlabelled": record.get("unlabelled", "The record holds no comparison of before and after."),
        "summary": _summary(rows, kept, bins, turned),
        "measure": rows[0].measure if rows else "",
        "change": "Change in MSE" if rows and rows[0].measure == "RMSE" else "Change",
        "removal": removal,
        "steps": [_step(row) for row in removal],
        "removal_chart": removal_chart(removal, kept, prefix) if removal else None,
        "groups": [(*_GROUPS[row.name], row) for row in rows if row.name in _GROUPS],
        "bins": bins,
        "flips": turned,
        "layers": _layers(record),
        "sites": _sites(record["terms"]),
        "term_charts": [] if "missing" in record["terms"] else term_charts(record["terms"], prefix),
        "training": training_charts(record["fit"], prefix),
        "held_out": held_out(record),
        "caveats": caveats(record, rows),
        "facts": facts(record),
    }


def headlines(record: Mapping[str, Any]) -> list[Told]:
    """The scores with every edge, and with as many as the user expects in use."""
    wanted = dict.fromkeys((1.0, round(1.0 - record["edge_loss"], 10)))
    by_share = {row.kept: row for row in _rows(record)}
    return [by_share[kept] for kept in wanted if kept in by_share]


def _rows(record: Mapping[str, Any]) -> list[Told]:
    comparison = record["comparison"]
    return [] if comparison is None else [Told.of(row, comparison["task"]) for row in comparison["differences"]]


def _step(row: Told) -> dict[str, Any]:
    """What the slider says at one share."""
    keep = share(row.kept, 0 if round(100 * (row.kept or 0.0), 6).is_integer() else 1)
    return {"kept": keep, "was": row.was, "now": row.now, "change": row.change, "interval": row.interval}


def _summary(rows: Sequence[Told], kept: float, bins: Sequence[Mapping[str, Any]], turned: Sequence[Any]) -> list[str]:
    """What the numbers say, in words."""
    by_share = {row.kept: row for row in rows if row.kept is not None}
    if not by_share:
        return []
    classes = rows[0].measure == "accuracy"
    sentences = []
    if kept < 1 and classes:
        lost = 100 * (by_share[1.0].before - by_share[kept].before)
        sentences.append(f"With {gone(kept)}, the base GNN {_moved(lost)}.")
    conditions = [f"{by_share[at].in_words()} with {gone(at)}" for at in dict.fromkeys((1.0, kept))]
    sentences.append(f"The buffer {' and '.join(conditions)}.")
    for verb, sign in (("helps most", 1), ("harms", -1)):
        if found := [who for section in bins if (who := _extreme(section, sign))]:
            sentences.append(f"With {gone(kept)}, it {verb} the {' and the '.join(found)}.")
    if turned and classes:
        last = turned[-1]
        draw = f", in the first of {last['draws']} draws" if last.get("draws", 1) > 1 else ""
        sentences.append(
            f"With {gone(last['kept'])}{draw}, it turns {last['gained']:,} of {last['nodes']:,} test nodes for the "
            f"better and {last['lost']:,} for the worse."
        )
    return sentences


def _moved(lost: float) -> str:
    if abs(lost) < 0.05:
        return "keeps its accuracy"
    return f"{'loses' if lost > 0 else 'gains'} {abs(lost):.1f} points of accuracy"


def _extreme(section: Mapping[str, Any], sign: int) -> str:
    """The bin that gains (or, with ``sign`` -1, loses) most at the expected loss, if that is sure.

    Bins are ranked by the end of the interval that is next to zero, so that no tiny bin wins by chance.
    """
    rows = [] if "missing" in section else section["sides"][-1][1]
    sure = [row for row in rows if row.clear and row.gain * sign > 0]
    if not sure:
        return ""
    best = max(sure, key=lambda row: min(sign * row.low, sign * row.high))
    return f"{section['who'].format(best.name)} ({best.change})"


def _bins(record: Mapping[str, Any], kept: float, prefix: str) -> list[dict[str, Any]]:
    told = record["bins"]
    shapes = {
        "degree": ("By number of neighbours", "Neighbours", "Number of neighbours", "nodes with {} neighbours"),
        "agreement": (
            "By agreement of the neighbours",
            "Same class, %",
            "Neighbours of the node’s own class, %",
            "nodes with {} % of their neighbours in their own class",
        ),
    }
    if "missing" in told:
        return [{"title": "By number of neighbours and their agreement", "missing": told["missing"]}]
    made: list[dict[str, Any]] = []
    for name, (title, head, label, who) in shapes.items():
        section = told[name]
        if "missing" in section:
            made.append({"title": title, "missing": section["missing"]})
            continue
        task = record["comparison"]["task"]
        conditions = {"full": 1.0} | ({"less": kept} if kept < 1 else {})
        sides = [
            (at, [Told.of_bin(row["label"], row["count"], row[key], task) for row in section["bins"]])
            for key, at in conditions.items()
        ]
        made.append(
            {
                "name": name,
                "title": title,
                "head": head,
                "who": who,
                "sides": sides,
                "lines": list(zip(*(rows for _, rows in sides), strict=True)),
                "charts": bin_charts(f"{prefix}{name}", label, sides),
                "left_out": section.get("left_out", 0),
            }
        )
    return made


def _flips(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The turned predictions at each share of edges; nothing where they are missing."""
    if "missing" in told:
        return []
    made = []
    for name, at in told.items():
        listed = [("gained", row) for row in at["listed"]["gained"]] + [("lost", row) for row in at["listed"]["lost"]]
        made.append({**at, "name": name, "rows": listed, "csv": _csv(listed), "complete": _complete(at)})
    return made


def _complete(at: Mapping[str, Any]) -> bool:
    return all(len(at["listed"][kind]) == at[kind] for kind in ("gained", "lost"))


def _csv(rows: Sequence[tuple[str, Sequence[Any]]]) -> str:
    """A ``data:`` URL of the rows, which needs neither a network nor a script."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["change", *_COLUMNS])
    writer.writerows([kind, *("" if value is None else value for value in row)] for kind, row in rows)
    return "data:text/csv;charset=utf-8;base64," + base64.b64encode(text.getvalue().encode()).decode()


def _sites(terms: Mapping[str, Any]) -> dict[str, list[str]]:
    """Where the term goes, and the layers that it does so in."""
    sites: dict[str, list[str]] = {}
    for layer in terms.get("layers", []):
        sites.setdefault(layer["site"], []).append(layer["name"] or "the model")
    return sites


def _layers(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each layer's constants, where the base was diagnosed, and its norms, where they were measured."""
    found = {layer["name"]: layer for layer in (record["diagnosis"] or {"layers": []})["layers"]}
    terms = {layer["name"]: layer for layer in record["terms"].get("layers", [])}
    return [
        {
            "name": layer["name"] or "the model",
            "class": layer["class"],
            "constants": found.get(layer["name"]),
            "terms": terms.get(layer["name"]),
            "ratios": [(told, ratio(told)) for told in terms.get(layer["name"], {"full": []})["full"]],
        }
        for layer in record["base"]["layers"]
    ]
