"""One run, from a trained GNN to a fitted buffer, and everything worth telling about it as plain JSON values."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import torch_geometric
from torch import nn
from torch_geometric.data import Data

from aggbuffer.attach import attach
from aggbuffer.compare import Comparison, compare
from aggbuffer.config import BufferConfig, FitConfig
from aggbuffer.diagnose import Diagnosis, diagnose
from aggbuffer.evaluate import evaluate
from aggbuffer.fit import FitResult, fit
from aggbuffer.graph import Graph
from aggbuffer.io import fingerprint, save
from aggbuffer.model import BufferedGNN
from aggbuffer.scale.distributed import current_ranks
from aggbuffer.store import GraphStore
from aggbuffer.text import percent
from aggbuffer.version import __version__

FORMAT = "aggbuffer-run-1"


@dataclass(frozen=True)
class Run:
    """A fitted buffer and what came of it.

    Attributes:
        model: The base with its buffers.
        data: The graph.
        result: How the buffers were trained.
        file: Where they were saved.
        comparison: Before and after on test nodes; None where the graph has no labels or no ``test_mask``.
        diagnosis: Of the base; None if nobody asked.
    """

    model: BufferedGNN
    data: Data | GraphStore
    result: FitResult
    file: Path
    comparison: Comparison | None
    diagnosis: Diagnosis | None

    def to_dict(self, *, title: str, description: str = "", load_code: str = "") -> dict[str, Any]:
        """Everything as JSON-ready values: what ``run.json`` holds and the report is made from.

        Args:
            title: What to call the run.
            description: What the graph is, in a sentence or two.
            load_code: Python code that loads the buffer.
        """
        base = self.model.base
        modules = dict(base.named_modules())
        told: dict[str, Any] = json_ready(
            {
                "format": FORMAT,
                "title": title,
                "description": description,
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "graph": _described(self.data),
                "base": {
                    "class": type(base).__name__,
                    "parameters": sum(p.numel() for p in base.parameters()),
                    "layers": [{"name": s.name, "class": type(modules[s.name]).__name__} for s in self.model.layers],
                    "fingerprint": fingerprint(base),
                },
                "buffer": {
                    "file": self.file.name,
                    "bytes": self.file.stat().st_size,
                    "parameters": self.model.num_buffer_parameters,
                    "config": self.model.config.to_dict(),
                },
                "fit": self.result.to_dict(),
                "comparison": self.comparison and self._compared(self.comparison),
                "diagnosis": self.diagnosis and self.diagnosis.to_dict(),
                "versions": {
                    "aggbuffer": __version__,
                    "torch": str(torch.__version__),
                    "torch-geometric": str(torch_geometric.__version__),
                    "python": platform.python_version(),
                },
                "machine": {
                    "processor": platform.machine(),
                    "cores": os.cpu_count(),
                    "threads": torch.get_num_threads(),
                },
                "load_code": load_code,
            }
        )
        return told

    def _compared(self, comparison: Comparison) -> dict[str, Any]:
        """The comparison, with the share of edges kept as a number where a row has one."""
        told = comparison.to_dict()
        shares = {f"{percent(share)} of edges": share for share in KEEP}
        for row in told["differences"]:
            row["kept"] = shares.get(row["name"])
        return told


def _described(data: Data | GraphStore) -> dict[str, Any]:
    graph = data if isinstance(data, GraphStore) else Graph.of(data)
    return {
        "nodes": graph.num_nodes,
        "edges": graph.num_links if graph.is_undirected else graph.num_edges,
        "undirected": graph.is_undirected,
        "features": graph.num_features if isinstance(graph, GraphStore) else graph.x.size(1),
    }


KEEP = (1.0, 0.75, 0.5, 0.25, 0.0)


def fit_and_judge(
    gnn: nn.Module,
    data: Data | GraphStore,
    file: Path,
    *,
    config: FitConfig,
    buffer_config: BufferConfig | None = None,
    diagnosed: bool = True,
    progress: bool | None = None,
    checkpoint: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
    saved: Callable[[], None] = lambda: None,
) -> Run:
    """Diagnose a trained GNN, fit and save its buffers, and evaluate it before and after on ``data.test_mask``.

    Args:
        gnn: The base, which keeps its buffers afterwards.
        data: The graph; without labels or ``test_mask`` there is no evaluation.
        file: Where to save the buffers, which happens as soon as they are fitted.
        config: How to train.
        buffer_config: Where the buffers act.
        diagnosed: Whether to diagnose the base first.
        progress: As for :func:`aggbuffer.fit`.
        checkpoint: As for :func:`aggbuffer.fit`.
        say: Told, in a sentence, what is known so far.
        saved: Called once the buffers are on disk.
    """
    testable = data.get("y") is not None and data.get("test_mask") is not None
    diagnosis = diagnose(gnn, data, task=config.task, seed=config.seed) if diagnosed else None
    if diagnosis:
        say(f"{diagnosis.in_words()}")
    alone = current_ranks() is None  # else the other processes would wait meanwhile
    before = evaluate(gnn, data, keep=KEEP, task=config.task) if testable and alone else None
    model = attach(gnn, data, buffer_config)
    result = fit(model, data, config, progress=progress, checkpoint=checkpoint)
    save(model, file, extra={"seed": str(config.seed), "best_epoch": str(result.best_epoch)})
    saved()
    say(
        f"Fitted {model.num_buffer_parameters:,} parameters in {result.seconds:.1f} s; "
        f"the state of epoch {result.best_epoch} of {result.epochs} was best on {result.monitor} and is kept."
    )
    if testable and not alone:
        with model.disabled():
            before = evaluate(model, data, keep=KEEP, task=config.task)
    comparison = compare(before, evaluate(model, data, keep=KEEP, task=config.task)) if before else None
    return Run(model, data, result, file, comparison, diagnosis)


def json_ready(value: Any) -> Any:
    """The same value with None for what JSON cannot say: NaN and infinities."""
    if isinstance(value, dict):
        return {key: json_ready(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
