"""What was measured, as JSON: one file for each command and graph, without dates or places."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from aggbuffer.files import write_bytes
from benchmarks.interleave import Outcome
from benchmarks.peers.protocol import CaseFile
from paper.environment import describe

Results = Sequence[Mapping[str, Any]]
RESULTS = Path(__file__).parent / "results"
UNSEEN = "ours, edges unseen"  # with buffers; only what depends on the features alone has been kept
OURS = "ours"
_APART = 1e-4  # how far logits of the same model may be apart, relative to the largest


def record(command: str, case: CaseFile, outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """A command's result on one graph."""
    peers = {name: _peer(outcome) for name, outcome in outcomes.items()}
    return {
        "command": command,
        "graph": case.settings.graph,
        "nodes": case.num_nodes,
        "directed_edges": case.edge_index.size(1),
        "features": case.x.size(1),
        "feature_entries": int(case.x.count_nonzero()),
        "settings": asdict(case.settings),
        "peers": peers,
        "ratios": ratios(peers),
        "doubt": doubt(outcomes),
        "environment": environment(case.settings.threads),
    }


def environment(threads: int) -> dict[str, str | int]:
    """Versions and hardware, with the number of threads that the contenders use."""
    return describe() | {"threads": threads}


def ratios(peers: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Each other contender's median ÷ ours."""
    ours = peers.get(OURS, {}).get("median")
    timed = {name: peer["median"] for name, peer in peers.items() if name != OURS and "median" in peer}
    return {name: seconds / ours for name, seconds in timed.items()} if ours else {}


def doubt(outcomes: Mapping[str, Outcome]) -> str:
    """Why the times are not to be trusted; empty if the contenders' results are finite and agree where they should."""
    odd = [name for name, outcome in outcomes.items() if not outcome.why and not _is_finite(outcome.notes)]
    if odd:
        return f"{', '.join(odd)} computed NaN or infinite values"
    logits = {name: outcome.notes["logits"] for name, outcome in outcomes.items() if "logits" in outcome.notes}
    for alike in ([OURS, UNSEEN], [name for name in logits if name not in (OURS, UNSEEN)]):
        first, *others = [name for name in alike if name in logits] or [""]
        for name in others:
            if _distance(logits[name], logits[first]) > _APART:
                return f"the logits of {name} are not those of {first} for the same model"
    return ""


def write(result: Mapping[str, Any], folder: Path = RESULTS) -> Path:
    """Keep a result in place of an earlier one of the same command and graph."""
    return write_json(result, folder / result["command"] / f"{result['graph'].replace(' ', '-')}.json")


def write_json(content: Mapping[str, Any], path: Path) -> Path:
    """A file of JSON, and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes((json.dumps(content, indent=1) + "\n").encode(), path)
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
    told = {name: value for name, value in outcome.notes.items() if name not in ("logits", "losses")}
    if losses := outcome.notes.get("losses"):
        told["last_loss"] = losses[-1]
    return {
        "median": median(seconds),
        "quartiles": [low, high],
        "seconds": [round(value, 7) for value in seconds],
        **told,
        "finite": _is_finite(outcome.notes),
    }


def _is_finite(notes: Mapping[str, Any]) -> bool:
    values = [*notes.get("losses", ()), *(value for row in notes.get("logits", ()) for value in row)]
    return bool(notes.get("finite", True)) and all(math.isfinite(value) for value in values)


def _distance(left: list[list[float]], right: list[list[float]]) -> float:
    """The largest difference of two samples of logits, relative to the largest logit."""
    pairs = [(a, b) for row in zip(left, right, strict=True) for a, b in zip(*row, strict=True)]
    return max(abs(a - b) for a, b in pairs) / max(1e-12, *(abs(b) for _, b in pairs))
