"""Results as markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from aggbuffer.text import markdown_table
from benchmarks import bound
from benchmarks.machine import Machine
from benchmarks.results import UNSEEN, Results

WITHOUT = "ours without buffer"


def times(results: Results) -> str:
    """Medians of all contenders, half the distance of their quartiles, and what the others take for one of ours."""
    names = _names(results)
    others = [name for name in names if name not in ("ours", WITHOUT, UNSEEN)]
    compared = [name for name in names if name == WITHOUT]
    rows = []
    for result in results:
        row = [result["graph"], *(_spread(result["peers"].get(name, {})) for name in names)]
        row += [_digits(1 / result["ratios"][name]) if name in result["ratios"] else "–" for name in compared]
        row += [_digits(result["ratios"].get(name)) for name in others]
        rows.append(row)
    headers = ["graph", *(f"{name}, ms" for name in names)]
    headers += ["with ÷ without buffer" for _ in compared] + [f"{name} ÷ ours" for name in others]
    return "\n\n".join([markdown_table(headers, rows), *remarks(results)])


def memory(results: Results) -> str:
    """The most that every contender's process held, and what it held before it built its model."""
    names = _names(results)
    others = [name for name in names if name != "ours"]
    rows = []
    for result in results:
        peak = {name: peer["peak_mib"] for name, peer in result["peers"].items() if "peak_mib" in peer}
        before = [peer["before_mib"] for peer in result["peers"].values() if "before_mib" in peer]
        row = [result["graph"], *(_mib(peak.get(name)) for name in names), _mib(max(before, default=None))]
        ours = peak.get("ours")
        rows.append([*row, *(_digits(peak[name] / ours) if ours and name in peak else "–" for name in others)])
    headers = ["graph", *(f"{name}, MiB" for name in names), "before the model", *(f"{name} ÷ ours" for name in others)]
    return "\n\n".join([markdown_table(headers, rows), *remarks(results)])


def scaling(results: Results) -> str:
    """Medians by number of edges, what an edge takes, and the slope on logarithmic axes."""
    names = _names(results)
    rows = []
    for result in results:
        medians = [result["peers"].get(name, {}).get("median") for name in names]
        per_edge = [None if m is None else 1e9 * m / result["directed_edges"] for m in medians]
        row = [f"{result['directed_edges']:,}", f"{result['nodes']:,}", *(_milliseconds(m) for m in medians)]
        rows.append([*row, *(_digits(value) for value in per_edge)])
    headers = ["directed edges", "nodes", *(f"{name}, ms" for name in names), *(f"{name}, ns/edge" for name in names)]
    told = [f"Slope of log time over log edges, {name}: {slope:.2f}." for name, slope in slopes(results).items()]
    return "\n\n".join([markdown_table(headers, rows), *told, *remarks(results)])


def slopes(results: Results) -> dict[str, float]:
    """By least squares, for every contender with two sizes or more."""
    found = {}
    for name in _names(results):
        timed = [result for result in results if "median" in result["peers"].get(name, {})]
        xs = [math.log(result["directed_edges"]) for result in timed]
        ys = [math.log(result["peers"][name]["median"]) for result in timed]
        if len(set(xs)) > 1:
            x, y = sum(xs) / len(xs), sum(ys) / len(ys)
            found[name] = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)
    return found


def bounds(results: Results, machine: Machine) -> str:
    """Every term of the lower bound in milliseconds, their sum, and our step ÷ that."""
    by_graph = [bound.terms(bound.Work.of(result), machine) for result in results]
    rows = [[name, *(_milliseconds(terms[name]) for terms in by_graph)] for name in (by_graph[0] if by_graph else ())]
    sums = [sum(terms.values()) for terms in by_graph]
    ours = [result["peers"].get("ours", {}).get("median") for result in results]
    rows.append(["lower bound", *map(_milliseconds, sums)])
    rows.append(["measured", *map(_milliseconds, ours)])
    rows.append(["measured ÷ bound", *(_digits(m and m / s) for m, s in zip(ours, sums, strict=True))])
    return markdown_table(["ms", *(result["graph"] for result in results)], rows)


def machine(found: Machine) -> str:
    """The limits of the machine."""
    products = [[shape, f"{rate:.0f}"] for shape, rate in found.products.items()]
    copies = [[f"{size} MiB", f"{rate:.0f}"] for size, rate in found.copies.items()]
    sizes = list(next(iter(found.gathers.values())))
    gathers = [[str(width), *(f"{rates[size]:.1f}" for size in sizes)] for width, rates in found.gathers.items()]
    return "\n\n".join(
        [
            markdown_table(["dense product, float32", "GFLOP/s"], products),
            markdown_table(["copy of", "GB/s, read and written"], copies),
            markdown_table(["width of a gathered row", *(f"GB/s, matrix of {size} MiB" for size in sizes)], gathers),
        ]
    )


def environments(results: Results) -> str:
    """Where and with what it was measured, each combination once."""
    lines: dict[str, None] = {}
    for result in results:
        where = result["environment"]
        versions = {
            name: version
            for peer in result.get("peers", {}).values()
            for name, version in peer.get("versions", {}).items()
        }
        dgl = f", DGL {versions['dgl']}" if "dgl" in versions else ""
        told = f"{where['processor']}, {where['threads']} threads on {where['cores']} cores; Python {where['python']}, "
        lines[f"{told}torch {where['torch']}, PyG {where['torch_geometric']}{dgl}."] = None
    return "\n".join(lines)


def remarks(results: Results) -> list[str]:
    """Why some contender has no numbers, and what was odd about a measurement."""
    told = [
        f"{result['graph']}: {name} {peer['why']}."
        for result in results
        for name, peer in result["peers"].items()
        if "why" in peer
    ]
    return told + [f"{result['graph']}: {result['doubt']}." for result in results if result.get("doubt")]


def _names(results: Results) -> list[str]:
    return list(dict.fromkeys(name for result in results for name in result["peers"]))


def _spread(peer: Mapping[str, Any]) -> str:
    if "median" not in peer:
        return "–"
    low, high = peer["quartiles"]
    return f"{_milliseconds(peer['median'])} ± {_milliseconds((high - low) / 2)}"


def _milliseconds(seconds: float | None) -> str:
    return _digits(None if seconds is None else 1000 * seconds)


def _mib(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _digits(value: float | None) -> str:
    """About three of them, and never a power of ten."""
    if value is None:
        return "–"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
