"""Figure: how far each layer's output moves when edges go, for MLP, GCN and GCN_B, beside what the theorem allows."""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

import torch

import aggbuffer as ab
from aggbuffer.data import load
from aggbuffer.spectral import spectral_norm
from paper.environment import describe
from paper.figures.figure import Figure
from paper.methods import Task, by_name
from paper.readme_figure import STYLE
from paper.runs import BASES
from paper.statistics import mean
from paper.units import Unit, settings_of

DATASET, SHARE = "Cora", 0.5
METHODS = {"MLP": "MLP", "GCN": "GCN", "GCN_B": "GCN_B paper"}
QUANTITIES = {
    "c1": "C1, passed on (at least)",
    "c2": "C2, made by the edges alone",
    "output": "how far the output moves",
}
_STYLE = ".bound { fill: none; stroke: #6e7781; stroke-width: 2 }"
_COLOURS = {"MLP": "#6e7781", "GCN": "#b08d2a", "GCN_B": "#1f9d83"}


def measure(unit: Unit, root: Path | None) -> dict[str, Any]:
    """Every layer of the three models on one split, with half of the edges gone."""
    data = load(unit.dataset, root, split=unit.split)
    settings = settings_of(unit.dataset, dict(unit.changes))
    task = Task(unit.dataset, unit.split, data, BASES, settings.base, settings.buffer, {})
    started = time.monotonic()
    layers = {label: _layers(by_name()[method](task).model, data, unit.split) for label, method in METHODS.items()}
    return {
        "dataset": unit.dataset,
        "split": unit.split,
        "drop_edge": SHARE,
        "layers": layers,
        "seconds": round(time.monotonic() - started, 2),
        "environment": describe(),
    }


def _layers(model: torch.nn.Module, data: Any, seed: int) -> list[dict[str, Any]]:
    """What is measured of each layer, beside what the theorem allows it.

    ``c1`` is how much of its input's movement a layer passes on, at the least: what its output moves beyond what the
    edges alone move, over what its input moves. The first layer's input does not move.
    """
    if (constants := _without_edges(model)) is not None:
        return [
            dict.fromkeys(("c1", "c2", "c2_bound", "output", "output_bound"), 0.0) | {"c1_bound": c1}
            for c1 in constants
        ]
    rows = []
    for layer in ab.diagnose(model, data, drop_edge=SHARE, seed=seed).layers:
        found = asdict(layer)
        passed = max(0.0, found["output"] - found["structural"]) / found["input"] if found["input"] else 0.0
        row = {
            "c1": passed,
            "c1_bound": found["c1_strict"],
            "c2": found["structural"],
            "c2_bound": found["c2"],
            "output": found["output"],
            "output_bound": layer.bound,
        }
        rows.append({key: _short(value) for key, value in row.items()})
    return rows


def _without_edges(model: torch.nn.Module) -> list[float] | None:
    """The norms of an MLP's layers, which are its C1: nothing of it moves with the edges. None for a GNN."""
    convs = list(getattr(model, "convs", []))
    if not convs or not all(isinstance(conv, torch.nn.Linear) for conv in convs):
        return None
    return [_short(spectral_norm(conv.weight.detach())) for conv in convs]


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def draw(results: list[dict[str, Any]]) -> dict[str, str]:
    """A row a layer and model: measured as a dot, allowed as a ring, on a logarithmic axis a panel."""
    depth = len(results[0]["layers"]["GCN"])
    rows = [(layer, label) for layer in range(depth) for label in METHODS]
    parts = [_panel(name, told, i, rows, results) for i, (name, told) in enumerate(QUANTITIES.items())]
    title = f"What moves when half of the edges go, on {DATASET}: mean of {len(results)} splits"
    width, height = 250 + 250 * len(parts), 70 + 26 * len(rows)
    names = "".join(
        f'<text class="label" x="14" y="{60 + 26 * i}">layer {layer + 1}, {label}</text>'
        for i, (layer, label) in enumerate(rows)
    )
    note = '<text class="label" x="14" y="22">dot: measured</text><text x="14" y="38">ring: the theorem’s bound</text>'
    return {
        "discrepancy.svg": f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width} {height}">'
        f"<title>{escape(title)}</title><style>{STYLE}{_STYLE}</style>{note}{names}{''.join(parts)}</svg>"
    }


def _panel(name: str, told: str, number: int, rows: list[tuple[int, str]], results: list[dict[str, Any]]) -> str:
    def of(layer: int, label: str, key: str) -> float:
        return mean([result["layers"][label][layer][key] for result in results])

    measured = [of(layer, label, name) for layer, label in rows]
    allowed = [of(layer, label, f"{name}_bound") for layer, label in rows]
    logs = [math.log10(v) for v in (*measured, *allowed) if v > 0] or [0.0, 1.0]
    low, high = math.floor(min(logs)), max(math.ceil(max(logs)), math.floor(min(logs)) + 1)
    left, span = 190 + 250 * number, 210

    def x(value: float) -> float:
        return left + span * ((math.log10(value) if value > 0 else low) - low) / (high - low)

    bottom = 50 + 26 * len(rows)
    parts = [f'<text class="label" x="{left}" y="30">{escape(told)}</text>']
    for power in range(low, high + 1, max(1, (high - low) // 4)):
        at = x(10.0**power)
        parts.append(f'<line class="grid" x1="{at:.1f}" y1="40" x2="{at:.1f}" y2="{bottom}"/>')
        parts.append(f'<text x="{at:.1f}" y="{bottom + 14}" text-anchor="middle">{_power(power)}</text>')
    for i, ((_, label), found, bound) in enumerate(zip(rows, measured, allowed, strict=True)):
        y = 56 + 26 * i
        if bound > 0:
            parts.append(f'<circle class="bound" cx="{x(bound):.1f}" cy="{y}" r="5"/>')
        if found > 0:
            parts.append(f'<circle cx="{x(found):.1f}" cy="{y}" r="4.5" fill="{_COLOURS[label]}"/>')
        else:
            parts.append(f'<text x="{left - 14}" y="{y + 4}">0</text>')
    return "".join(parts)


def _power(exponent: int) -> str:
    return "1" if exponent == 0 else "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


FIGURE = Figure("discrepancy", "C1 and C2 of every layer beside the theorem's bounds", DATASET, 5, measure, draw)
