"""What was measured, as JSON: one file for each command and graph, without dates or places."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from aggbuffer.files import write_bytes
from benchmarks.interleave import Outcome
from benchmarks.peers.protocol import CaseFile
from paper.environment import describe

RESULTS = Path(__file__).parent / "results"
OURS = "ours"


def record(command: str, case: CaseFile, outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """A command's result on one graph."""
    peers = {name: _peer(outcome) for name, outcome in outcomes.items()}
    return {
        "command": command,
        "graph": case.settings.graph,
        "nodes": case.num_nodes,
        "directed_edges": case.edge_index.size(1),
        "features": case.x.size(1),
        "settings": asdict(case.settings),
        "peers": peers,
        "ratios": ratios(peers),
        "environment": describe() | {"threads": case.settings.threads},
    }


def ratios(peers: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Each other contender's median ÷ ours."""
    ours = peers.get(OURS, {}).get("median")
    timed = {name: peer["median"] for name, peer in peers.items() if name != OURS and "median" in peer}
    return {name: seconds / ours for name, seconds in timed.items()} if ours else {}


def write(result: Mapping[str, Any], folder: Path = RESULTS) -> Path:
    """Keep a result in place of an earlier one of the same command and graph."""
    path = folder / result["command"] / f"{result['graph'].replace(' ', '-')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes((json.dumps(result, indent=1) + "\n").encode(), path)
    return path


def every(command: str, folder: Path = RESULTS) -> list[dict[str, Any]]:
    """All results of a command, the small graphs first."""
    found = [json.loads(path.read_text()) for path in (folder / command).glob("*.json")]
    return sorted(found, key=lambda result: (result["nodes"] + result["directed_edges"], result["graph"]))


def _peer(outcome: Outcome) -> dict[str, Any]:
    if outcome.why:
        return {"why": outcome.why}
    seconds = outcome.seconds
    low, _, high = quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else seconds * 3
    return {
        "median": median(seconds),
        "quartiles": [low, high],
        "seconds": [round(value, 7) for value in seconds],
        **_finite(outcome.notes),
    }


def _finite(notes: Mapping[str, Any]) -> dict[str, Any]:
    """What a contender told at its end, without the values themselves: only whether they are finite, and the last."""
    told = dict(notes)
    if losses := told.pop("losses", None):
        told["last_loss"] = losses[-1]
        told["finite"] = all(math.isfinite(loss) for loss in losses)
    if logits := told.pop("logits", None):
        told["finite"] = all(math.isfinite(value) for row in logits for value in row)
    return told
