"""What a search is of: a study that was made for something else must not be mixed with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from aggbuffer.checkpoint import run_identity
from aggbuffer.config import BufferConfig, FitConfig
from aggbuffer.fingerprint import fingerprint
from aggbuffer.graph import Graph
from aggbuffer.sweep.job import Job
from aggbuffer.sweep.space import Space
from aggbuffer.targets import select

FORMAT = 1

_TOLD = {
    "format": "by another version of aggbuffer",
    "base": "for another base model",
    "graph": "for another graph, or other labels or masks",
    "space": "for another space",
    "fit": "with other settings of the fits",
    "buffer": "with other settings of the buffer",
}


def identity_of(job: Job, space: Space) -> dict[str, Any]:
    """All that decides what a trial's score is, as JSON-ready values; test nodes are no part of it.

    Settings are told by their difference from the defaults, so that a later version with more settings still knows an
    older study.
    """
    graph = Graph.of(job.data)
    used = [select(graph.data, mask, graph.num_nodes) for mask in (job.train_mask, job.val_mask)]
    seen = [part for part in (*used, graph.data.get("y")) if part is not None]
    fixed = {name: value for name, value in _changed(job.config).items() if name not in space.settings}
    return {
        "format": FORMAT,
        "base": fingerprint(job.gnn),
        "graph": run_identity({}, "", graph, seen),
        "space": space.to_dict(),
        "fit": fixed,
        "buffer": _changed(job.buffer_config or BufferConfig()),
    }


def digest_of(identity: Mapping[str, Any]) -> str:
    """The same in a few characters."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """The first thing in which another search differs from ours: how it was made; empty if they are the same."""
    return next((told for name, told in _TOLD.items() if ours.get(name) != theirs.get(name)), "")


def _changed(config: FitConfig | BufferConfig) -> dict[str, Any]:
    usual = type(config)().to_dict()
    return {name: value for name, value in config.to_dict().items() if value != usual[name]}
