"""GCN_B: the base GCN with aggregation buffers, by the paper's text."""

from __future__ import annotations

from dataclasses import asdict

import aggbuffer as ab
from paper.methods import Outcome, Task, gcn
from paper.settings import BUFFER


def paper(task: Task) -> Outcome:
    """No bias, both directions of an edge dropped together, self-loops left alone; stopped on validation loss."""
    base = gcn.train(task)
    model = ab.attach(base.model, task.data)
    fitted = ab.fit(model, task.data, seed=task.split, **asdict(BUFFER[task.dataset]))
    record = {"settings": fitted.config.to_dict(), "epochs": fitted.epochs, "best_epoch": fitted.best_epoch}
    return Outcome(model, record | {"val_loss": fitted.best_score, "fit_seconds": fitted.seconds})
