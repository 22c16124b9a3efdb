"""Read the paper's tables off its LaTeX source: ``python -m paper.published.extract SOURCE.tex``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from paper.definitions import FOUR, LARGE, REMOVAL, TWELVE
from paper.published import FOLDER
from paper.store import as_text

Row = list[list[float]]
"""Cells ``[mean]`` or ``[mean, deviation]``."""
Values = dict[str, dict[str, dict[str, list[float]]]]

_CELL = re.compile(r"(-?\d+(?:\.\d+)?(?:e-\d)?)(?:_\\pm(\d+\.\d+))?")
_MARKUP = re.compile(r"\\(?:modified|mathbf|underline|textcolor\{blue\}|text|[()])")
_METHODS = ("MLP", "GCN", "DropEdge", "DropNode", "DropMessage", "TUNEUP", "GraphPatcher", "GCN_B")
_DEEP = ("Cora", "PubMed", "Computers", "CS", "Squirrel", "Chameleon")
_WITH = ("GCN", "GCN_B")


def tables(source: str) -> dict[str, Any]:
    """Every table of the paper, by the name of its file."""
    found = _tables_by_label(source)
    architectures = [name + end for name in ("SAGE", "GAT", "SGC", "GIN") for end in ("", "_B")]
    blocks = ("GCN", "AGG", "Residual", "JKNet", "single", "AGG_B")
    losses = ("pseudo-label", "self-distillation", "cross-entropy", "L_RC train", "L_RC")
    parts = ("GCN_B", "minus freezing", "minus block", "minus pre-training")
    variants = [*_told((2, 4, 6, 8), "layers"), *_told((64, 128, 256, 512), "wide"), "ReLU", "ELU", "Sigmoid", "Tanh"]
    degree, agreement = ("overall", "head", "tail"), ("homophilous", "heterophilous")
    values = {
        "main": _lines(found["tbl:Overall"], degree, _METHODS, TWELVE),
        "disparity": _lines(found["tbl:Structural-disparity"], agreement, _METHODS, TWELVE),
        "architectures": _lines(found["ablation_architecture"], ["overall"], architectures, FOUR),
        "blocks": _lines([row[:12] for row in found["tbl:layer_ablation_rebuttal"]], ["overall"], blocks, TWELVE),
        "blocks-four": _lines(found["ablation_layer"], ["overall"], ("JKNet", "Residual", "AGG", "AGG_B"), FOUR),
        "losses": _lines(found["ablation_loss"], ["overall"], losses, FOUR),
        "hyperparameters": _variants(found["ablation_hp"], variants, ("PubMed", "ogbn-arxiv"), _WITH),
        "components": _lines(found["ablation"], ["overall"], parts, FOUR),
        "removal": _metrics(_beside(found["tbl:edge removal"], 5), REMOVAL, TWELVE, ("GCN", "DropEdge", "GCN_B")),
        "depth": _variants(
            _beside(found["rebuttal_deeper_gcn_table"], 5),
            _told((4, 8, 12, 16, 20), "layers"),
            _DEEP,
            ("GCN", "GCN_B", "DropEdge", "DropEdge_B"),
        ),
        "large": _metrics(found["tbl:large dataset"], (*degree, *agreement), LARGE, _WITH),
        "large-removal": _metrics(found["Accuracy under random"], REMOVAL, LARGE, _WITH),
    }
    result: dict[str, Any] = {name: {"values": v} for name, v in values.items()}
    ranks = [row[12][0] for row in found["tbl:layer_ablation_rebuttal"]]
    result["blocks"]["ranks"] = dict(zip(blocks, ranks, strict=True))
    columns = ("nodes", "edges", "features", "classes", "homophily", "hidden", "lr", "weight_decay", "dropout")
    result["datasets"] = {"values": _plain(found["tbl:datasets"], columns)}
    result["buffer"] = {"values": _plain(found["tbl:hp_setting"], ("strength", "dropout", "drop_edge"))}
    return result


def _tables_by_label(source: str) -> dict[str, list[Row]]:
    """Rows of numbers of each table, by its first label, or by how its caption begins if it has none."""
    source = re.sub(r"(?<!\\)%.*", "", source)
    found = {}
    for body in re.findall(r"\\begin\{table\*?\}(.*?)\\end\{table\*?\}", source, flags=re.DOTALL):
        label = re.search(r"\\label\{([^}]*)\}", body)
        caption = re.search(r"\\caption\{\s*(\S+ \S+ \S+)", body)
        rows = [_row(line) for line in body.split(r"\\")]
        key = label or caption
        assert key is not None, body[:80]
        found[key[1]] = [row for row in rows if row]
    return found


def _row(line: str) -> Row:
    """The cells after the first; nothing if one of them is no number."""
    cells = [_cell(cell) for cell in line.split("&")[1:]]
    return [cell for cell in cells if cell] if all(cells) else []


def _cell(text: str) -> list[float]:
    plain = re.sub(r"[{}$\s,]", "", _MARKUP.sub("", text))
    match = _CELL.fullmatch(plain)
    return [float(part) for part in match.groups() if part] if match else []


def _lines(rows: Sequence[Row], metrics: Iterable[str], lines: Sequence[str], datasets: Sequence[str]) -> Values:
    """Sections of lines; graphs across."""
    values: Values = {}
    for (metric, line), row in zip(product(metrics, lines), rows, strict=True):
        values.setdefault(metric, {})[line] = dict(zip(datasets, row, strict=True))
    return values


def _metrics(rows: Sequence[Row], metrics: Sequence[str], datasets: Sequence[str], lines: Sequence[str]) -> Values:
    """One metric a row; graphs across, and methods across each."""
    values: Values = {}
    for metric, row in zip(metrics, rows, strict=True):
        for (dataset, line), cell in zip(product(datasets, lines), row, strict=True):
            values.setdefault(metric, {}).setdefault(line, {})[dataset] = cell
    return values


def _variants(rows: Sequence[Row], labels: Sequence[str], datasets: Sequence[str], lines: Sequence[str]) -> Values:
    """One variant of the base a row; graphs across, and methods across each."""
    values: Values = {"overall": {}}
    for label, row in zip(labels, rows, strict=True):
        for (dataset, line), cell in zip(product(datasets, lines), row, strict=True):
            values["overall"].setdefault(f"{line} {label}", {})[dataset] = cell
    return values


def _plain(rows: Sequence[Row], lines: Sequence[str]) -> dict[str, dict[str, float]]:
    """Numbers without deviations."""
    return {
        line: {
            dataset: int(cell[0]) if cell[0].is_integer() else cell[0]
            for dataset, cell in zip(TWELVE, row, strict=True)
        }
        for line, row in zip(lines, rows, strict=True)
    }


def _beside(rows: Sequence[Row], height: int) -> list[Row]:
    """Parts of a table that are printed below each other, put side by side."""
    return [[cell for row in rows[i::height] for cell in row] for i in range(height)]


def _told(numbers: Iterable[int], what: str) -> list[str]:
    return [f"{number} {what}" for number in numbers]


if __name__ == "__main__":
    for name, table in tables(Path(sys.argv[1]).read_text()).items():
        (FOLDER / f"{name}.json").write_text(as_text(table))
