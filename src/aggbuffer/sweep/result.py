"""What a search found, and its tables on disk."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from aggbuffer.config import FitConfig
from aggbuffer.errors import SearchError
from aggbuffer.files import write_bytes
from aggbuffer.report.run import json_ready
from aggbuffer.sweep.best import BUFFER
from aggbuffer.sweep.records import Progress, TrialRecord, best_of
from aggbuffer.sweep.space import Space
from aggbuffer.sweep.storage import Storage

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
        storage_kind: What that is.
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
    storage_kind: str

    @classmethod
    def of(
        cls,
        trials: list[TrialRecord],
        points: Iterable[int],
        name: str,
        space: Space,
        fixed: FitConfig,
        base: dict[str, float],
        folder: Path,
        storage: Storage,
    ) -> Self:
        """What a study has come to.

        Raises:
            SearchError: If no trial is complete.
        """
        best = best_of(trials)
        if best is None:
            reason = next((trial.reason for trial in trials if trial.reason), "their workers died")
            raise SearchError(f"No trial came through ({reason.rstrip('.')}); see the space and the settings.")
        return cls(
            name=name,
            space=space,
            monitor=fixed.monitor,
            best=best,
            config=fixed.override(**best.settings),
            file=folder / BUFFER,
            page=folder / PAGE,
            base=base,
            trials=trials,
            progress=Progress.of(trials, points),
            storage=storage.told,
            storage_kind=storage.kind,
        )

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


def write_tables(result: SweepResult) -> None:
    """Write every attempt to ``trials.csv`` and ``trials.json``, beside the page."""
    text = io.StringIO()
    names = list(result.space.settings)
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["trial", "point", "state", *names, *_COLUMNS])
    for trial in result.trials:
        values = trial.to_dict()
        settings = [trial.settings.get(name) for name in names]
        rows.writerow([trial.number, trial.point, trial.state, *settings, *(values[name] for name in _COLUMNS)])
    write_bytes(text.getvalue().encode(), result.page.with_name(CSV))
    told = json.dumps(json_ready([trial.to_dict() for trial in result.trials]), indent=1, allow_nan=False)
    write_bytes((told + "\n").encode(), result.page.with_name(JSON))
