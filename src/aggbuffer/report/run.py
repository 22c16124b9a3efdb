"""One run, from a trained GNN to a fitted buffer, and everything worth telling about it as plain JSON values."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from aggbuffer.attach import attach
from aggbuffer.callbacks import Callback
from aggbuffer.compare import Comparison
from aggbuffer.config import BufferConfig, FitConfig, check_number
from aggbuffer.diagnose import Diagnosis, diagnose
from aggbuffer.evaluate import removal_name
from aggbuffer.fit import FitResult, fit
from aggbuffer.graph import Graph
from aggbuffer.io import fingerprint, save
from aggbuffer.model import BufferedGNN
from aggbuffer.report.judged import Judged, Judgement
from aggbuffer.report.reading import FORMAT
from aggbuffer.report.terms import layer_terms
from aggbuffer.report.timing import inference_times
from aggbuffer.scale.distributed import current_ranks
from aggbuffer.store import GraphStore
from aggbuffer.version import library_versions

KEEP = (1.0, 0.75, 0.5, 0.25, 0.0)
_FINE = tuple(i / 10 for i in range(11))
_FINE_UP_TO = 1_000_000  # edges: on larger graphs every further share costs seconds


@dataclass(frozen=True)
class Run:
    """A fitted buffer and what came of it.

    Attributes:
        model: The base with its buffers.
        data: The graph.
        result: How the buffers were trained.
        file: Where they were saved.
        comparison: Before and after on test nodes, at the shares of edges worth a table; None where the graph has no
            labels or no ``test_mask``.
        diagnosis: Of the base; None if nobody asked.
        edge_loss: Share of the edges that the user expects to lose.
        measured: What else the report tells, as JSON-ready values.
    """

    model: BufferedGNN
    data: Data | GraphStore
    result: FitResult
    file: Path
    comparison: Comparison | None
    diagnosis: Diagnosis | None
    edge_loss: float = 0.5
    measured: dict[str, Any] = field(default_factory=dict)

    def to_dict(self, *, title: str, description: str = "", load_code: str = "") -> dict[str, Any]:
        """Everything as JSON-ready values: what ``run.json`` holds and the report is made from.

        Args:
            title: What to call the run.
            description: What the graph is, in a sentence or two.
            load_code: Python code that loads the buffer.
        """
        base, graph = self.model.base, _described(self.data)
        modules = dict(base.named_modules())
        told: dict[str, Any] = json_ready(
            {
                "format": FORMAT,
                "title": title,
                "description": description,
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "edge_loss": self.edge_loss,
                "graph": graph,
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
                "diagnosis": self.diagnosis and self.diagnosis.to_dict(),
                "held_out": _held_out(self.data, graph["nodes"]),
                **self.measured,
                "versions": library_versions(),
                "machine": {
                    "processor": platform.machine(),
                    "cores": os.cpu_count(),
                    "threads": torch.get_num_threads(),
                },
                "load_code": load_code,
            }
        )
        return told


def _described(data: Data | GraphStore) -> dict[str, Any]:
    graph = data if isinstance(data, GraphStore) else Graph.of(data)
    return {
        "nodes": graph.num_nodes,
        "edges": graph.num_links if graph.is_undirected else graph.num_edges,
        "undirected": graph.is_undirected,
        "features": graph.num_features if isinstance(graph, GraphStore) else graph.x.size(1),
    }


def fit_and_judge(
    gnn: nn.Module,
    data: Data | GraphStore,
    file: Path,
    *,
    config: FitConfig,
    buffer_config: BufferConfig | None = None,
    diagnosed: bool = True,
    edge_loss: float = 0.5,
    progress: bool | None = None,
    checkpoint: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
    saved: Callable[[], None] = lambda: None,
    callbacks: Iterable[Callback] = (),
) -> Run:
    """Diagnose a trained GNN, fit and save its buffers, and evaluate it before and after on ``data.test_mask``.

    Args:
        gnn: The base, which keeps its buffers afterwards.
        data: The graph; without labels or ``test_mask`` there is no evaluation.
        file: Where to save the buffers, which happens as soon as they are fitted.
        config: How to train.
        buffer_config: Where the buffers act.
        diagnosed: Whether to diagnose the base first.
        edge_loss: Share of the edges that are expected to be missing in use, 0 to 1; the report tells what the buffer
            does there.
        progress: As for :func:`aggbuffer.fit`.
        checkpoint: As for :func:`aggbuffer.fit`.
        say: Told, in a sentence, what is known so far.
        saved: Called once the buffers are on disk.
        callbacks: As for :func:`aggbuffer.fit`.
    """
    check_number("edge_loss", edge_loss, 0, 1)
    kept = round(1.0 - edge_loss, 10)
    diagnosis = diagnose(gnn, data, task=config.task, seed=config.seed) if diagnosed else None
    if diagnosis:
        say(f"{diagnosis.in_words()}")
    judged = None
    if current_ranks() is None:  # else the other processes would wait meanwhile
        judged = Judged.before(gnn, data, _shares(data, kept), kept, config.task)
    model = attach(gnn, data, buffer_config)
    result = fit(model, data, config, progress=progress, checkpoint=checkpoint, callbacks=callbacks)
    save(model, file, extra={"seed": str(config.seed), "best_epoch": str(result.best_epoch)})
    saved()
    say(
        f"Fitted {model.num_buffer_parameters:,} parameters in {result.seconds:.1f} s; "
        f"the state of epoch {result.best_epoch} of {result.epochs} was best on {result.monitor} and is kept."
    )
    if judged is None:
        with model.disabled():
            judged = Judged.before(model, data, _shares(data, kept), kept, config.task)
    judgement = judged.after(model, data)
    measured = {**judgement.told, **_layers_and_times(model, data, kept)}
    table = _for_a_table(judgement, kept)
    return Run(model, data, result, file, table, diagnosis, edge_loss=float(edge_loss), measured=measured)


def _layers_and_times(model: BufferedGNN, data: Data | GraphStore, kept: float) -> dict[str, Any]:
    if isinstance(data, GraphStore):  # of which no pass is made at once
        missing = {"missing": "It is not measured on a graph on disk."}
        return {"terms": missing, "inference": missing}
    return {"terms": layer_terms(model, data, kept), "inference": inference_times(model, data)}


def _shares(data: Data | GraphStore, kept: float) -> tuple[float, ...]:
    """Shares of edges to keep in the evaluation, from all to none."""
    fine = _FINE if not isinstance(data, GraphStore) and Graph.of(data).num_edges <= _FINE_UP_TO else ()
    return tuple(sorted({*KEEP, *fine, kept}, reverse=True))


def _for_a_table(judgement: Judgement, kept: float) -> Comparison | None:
    """The comparison without the shares that only a curve is drawn from."""
    whole = judgement.comparison
    if whole is None:
        return None
    extra = {removal_name(share) for share in judgement.shares if share not in (*KEEP, kept)}
    return Comparison([d for d in whole.differences if d.name not in extra], whole.task, whole.level)


def _held_out(data: Data | GraphStore, num_nodes: int) -> dict[str, Any]:
    """How many nodes each mask selects, and how many test nodes another mask selects, too."""
    masks = {name: data.get(f"{name}_mask") for name in ("train", "val", "test")}
    chosen = {name: None if mask is None else _chosen(mask, num_nodes) for name, mask in masks.items()}
    told: dict[str, Any] = {name: None if at is None else int(at.sum()) for name, at in chosen.items()}
    test = chosen["test"]
    seen = [at for name, at in chosen.items() if name != "test" and at is not None]
    told["test_seen"] = 0 if test is None or not seen else int((test & torch.stack(seen).any(0)).sum())
    return told


def _chosen(mask: Any, num_nodes: int) -> Tensor:
    """A mask, or node numbers, as a mask ``[N]``."""
    found: Tensor = torch.as_tensor(mask).cpu()
    if found.dtype == torch.bool:
        return found
    return torch.zeros(num_nodes, dtype=torch.bool).index_fill_(0, found.long(), True)


def json_ready(value: Any) -> Any:
    """The same value with None for what JSON cannot say: NaN and infinities."""
    if isinstance(value, dict):
        return {key: json_ready(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
