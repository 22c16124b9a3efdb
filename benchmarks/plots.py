"""Results as pictures for the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt

ASSETS = Path(__file__).parents[1] / "docs" / "assets"
STEP, SCALING = "benchmark-step.svg", "benchmark-scaling.svg"
_COLOURS = {"pyg": "#c2571a", "dgl": "#5b6ee1", "ours": "#1b8a5a"}
_NAMES = {"pyg": "plain PyG", "dgl": "DGL", "ours": "aggbuffer"}


def bars(results: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """How many times longer the others take, graph by graph."""
    others = [name for name in ("pyg", "dgl") if any(name in result["ratios"] for result in results)]
    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    thickness = 0.8 / max(1, len(others))
    for i, name in enumerate(others):
        at = [k + (i - (len(others) - 1) / 2) * thickness for k in range(len(results))]
        heights = [result["ratios"].get(name, 0.0) for result in results]
        drawn = axes.bar(at, heights, thickness * 0.92, color=_COLOURS[name], label=_NAMES[name])
        axes.bar_label(drawn, [f"{height:.0f}" if height else "" for height in heights], fontsize=8)
    axes.axhline(1, color="#555555", linewidth=0.8)
    axes.set_xticks(range(len(results)), [result["graph"] for result in results], fontsize=9)
    axes.set_ylabel("times as long as aggbuffer")
    axes.legend(frameon=False)
    return _save(figure, path)


def line(results: Sequence[Mapping[str, Any]], slopes: Mapping[str, float], path: Path) -> Path:
    """Seconds of a step over directed edges, both on logarithmic axes."""
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for name, slope in slopes.items():
        timed = [result for result in results if "median" in result["peers"].get(name, {})]
        edges = [result["directed_edges"] for result in timed]
        seconds = [result["peers"][name]["median"] for result in timed]
        axes.loglog(edges, seconds, "o-", color=_COLOURS[name], label=f"{_NAMES[name]}, slope {slope:.2f}")
    axes.set_xlabel("directed edges")
    axes.set_ylabel("seconds of a step")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return _save(figure, path)


def _save(figure: Any, path: Path) -> Path:
    """Without the date and with fixed names inside, so that the same numbers give the same file."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    with matplotlib.rc_context({"svg.hashsalt": "aggbuffer", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path
