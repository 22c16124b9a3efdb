"""What a search found, and its tables on disk."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aggbuffer.config import FitConfig
from aggbuffer.files import write_bytes
from aggbuffer.report.run import json_ready
from aggbuffer.sweep.records import Progress, TrialRecord
from aggbuffer.sweep.space import Space

CSV, JSON, PAGE = "trials.csv", "trials.json", "sweep.html"

_COLUMNS = ("score", "val_loss", "val_accuracy", "best_epoch", "epochs", "seconds", "worker", "reason")


@dataclass(frozen=True)
class SweepResult:
    """A finished search.

    Attributes:
        name: Of the study.
        space: What was searched.
        monitor: What trials are compared by, on validation nodes.
        best: The trial with the lowest score.
        config: Its whole configuration, ready for :func:`aggbuffer.fit`.
        file: Its buffer, for :func:`aggbuffer.load`.
        page: The search's page.
        base: What the base itself scores on validation nodes.
        trials: Every attempt, lost ones too.
        progress: How many points came out how.
        storage: Where the trials are kept, without any password.
    """

    name: str
    space: Space
    monitor: str
    best: TrialRecord
    config: FitConfig
    file: Path
    page: Path
    base: dict[str, float]
    trials: list[TrialRecord]
    progress: Progress
    storage: str

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        found: dict[str, Any] = json_ready(
            {
                "name": self.name,
                "storage": self.storage,
                "space": self.space.to_dict(),
                "monitor": self.monitor,
                "best": self.best.to_dict(),
                "config": self.config.to_dict(),
                "file": str(self.file),
                "page": str(self.page),
                "base": self.base,
                "points": self.progress.points,
                "complete": self.progress.complete,
                "pruned": self.progress.pruned,
                "failed": self.progress.failed,
                "lost": self.progress.lost,
                "trials": [trial.to_dict() for trial in self.trials],
            }
        )
        return found


def write_tables(out: Path, space: Space, trials: Sequence[TrialRecord]) -> None:
    """Write every attempt to ``trials.csv`` and ``trials.json``."""
    text = io.StringIO()
    names = list(space.settings)
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["trial", "point", "state", *names, *_COLUMNS])
    for trial in trials:
        values = trial.to_dict()
        settings = [trial.settings.get(name) for name in names]
        rows.writerow([trial.number, trial.point, trial.state, *settings, *(values[name] for name in _COLUMNS)])
    write_bytes(text.getvalue().encode(), out / CSV)
    told = json.dumps(json_ready([trial.to_dict() for trial in trials]), indent=1, allow_nan=False)
    write_bytes((told + "\n").encode(), out / JSON)
