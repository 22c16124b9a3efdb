"""Results as markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aggbuffer.text import markdown_table


def times(results: Sequence[Mapping[str, Any]]) -> str:
    """Medians of all contenders, and what each of the others takes for what we do once."""
    names = list(dict.fromkeys(name for result in results for name in result["peers"]))
    others = [name for name in names if name != "ours"]
    rows, remarks = [], []
    for result in results:
        peers = result["peers"]
        row = [result["graph"]]
        row += [milliseconds(peers.get(name, {}).get("median")) for name in names]
        row += [ratio(result["ratios"].get(name)) for name in others]
        rows.append(row)
        remarks += [
            f"{result['graph']}: {name} {peers[name]['why']}." for name in names if "why" in peers.get(name, {})
        ]
    headers = ["graph", *(f"{name}, ms" for name in names), *(f"{name} ÷ ours" for name in others)]
    return "\n\n".join([markdown_table(headers, rows), *remarks])


def milliseconds(seconds: float | None) -> str:
    """With three digits."""
    return "–" if seconds is None else digits(1000 * seconds)


def ratio(value: float | None) -> str:
    return "–" if value is None else digits(value)


def digits(value: float) -> str:
    """With three digits, and never as a power of ten."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
