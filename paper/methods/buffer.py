"""GCN_B and all its ablations and departures: a trained base with buffers, fitted in one way or another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import aggbuffer as ab
from paper.methods import Method, Outcome, Task, dropedge, gcn, joint

_OF_THE_BLOCK = {f.name for f in fields(ab.BufferConfig)}


@dataclass(frozen=True)
class Variant:
    """A way to fit buffers; what it does not set is the library's default.

    Attributes:
        block: Settings of the blocks.
        fit: Settings of their training.
        norms: Train the LayerNorms of a residual base along.
        base: The method that trains the base.
        patience: Of a single graph, where the variant has one of its own.
    """

    block: Mapping[str, Any] = field(default_factory=dict)
    fit: Mapping[str, Any] = field(default_factory=dict)
    norms: bool = False
    base: Method = gcn.train
    patience: Mapping[str, int] = field(default_factory=dict)

    def train(self, task: Task) -> Outcome:
        """``params`` are settings of block or fit, which have the last word."""
        own = {"patience": self.patience[task.dataset]} if task.dataset in self.patience else {}
        wanted = {**asdict(task.buffer), **self.block, **self.fit, **own, **task.params}
        block = ab.BufferConfig(**{name: value for name, value in wanted.items() if name in _OF_THE_BLOCK})
        wanted = {name: value for name, value in wanted.items() if name not in _OF_THE_BLOCK}
        config = ab.FitConfig(**{"seed": task.split, **wanted})
        base = self.base(gcn.alone(task))
        model = ab.attach(base.model, task.data, block)
        norms = joint.norms_of(base.model) if self.norms else []
        if norms:
            fitted = joint.fit(model, task.data, config, [*model.buffer_parameters(), *norms])
        else:
            fitted = ab.fit(model, task.data, config, progress=False)
        return Outcome(model, record_of(base, block, fitted) | {"norms_trained": len(norms)})


def record_of(base: Outcome, block: ab.BufferConfig, fitted: ab.FitResult) -> dict[str, Any]:
    """What is kept of a fit, JSON-ready."""
    best = fitted.history[fitted.best_epoch - 1] if fitted.best_epoch else None
    return {
        "base": base.record,
        "block": block.to_dict(),
        "fit": fitted.config.to_dict(),
        "epochs": fitted.epochs,
        "best_epoch": fitted.best_epoch,
        "monitor": fitted.monitor,
        "best_score": fitted.best_score,
        "val_accuracy": best.val_accuracy if best else base.record["val_accuracy"],
        "stopped": fitted.stopped,
        "seconds": {"base": sum(base.record["seconds"].values()), "fit": fitted.seconds},
    }


def _paper(block: Mapping[str, Any] | None = None, fit: Mapping[str, Any] | None = None, **others: Any) -> Variant:
    """The paper's text but for what is given, whatever the library's defaults are."""
    text = {"loss": "rc", "directions": "together", "self_loops": "kept", "detach_target": False}
    trained = {"monitor": "val_loss", "lr": 1e-2, "patience": 100}
    return Variant({"block": "agg_b", "bias": False, **(block or {})}, {**text, **trained, **(fit or {})}, **others)


VARIANTS = {
    "GCN_B paper": _paper(),
    # Every departure of the authors' code. On PubMed it had not stopped improving when patience 100 would stop it.
    "GCN_B reference": _paper(
        {"bias": True},
        {"self_loops": "redrawn", "directions": "independent"},
        norms=True,
        patience={"PubMed": 400},
    ),
    "GCN_B default": Variant(),
    "AGG": _paper({"block": "agg"}),
    "Residual": _paper({"block": "residual"}),
    "JKNet": _paper({"block": "jknet"}),
    "single": _paper({"block": "single"}),
    "pseudo-label": _paper(fit={"loss": "pseudo_label"}),
    "self-distillation": _paper(fit={"loss": "self_distillation"}),
    "cross-entropy": _paper(fit={"loss": "cross_entropy"}),
    "L_RC train": _paper(fit={"loss": "rc_train"}),
    "DropEdge_B": _paper(base=dropedge.train),
    "departure bias": _paper({"bias": True}),
    "departure self-loops": _paper(fit={"self_loops": "redrawn"}),
    "departure directions": _paper(fit={"directions": "independent"}),
    "departure norms": _paper(norms=True),
}
