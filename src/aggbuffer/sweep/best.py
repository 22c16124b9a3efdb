"""The best trial's buffer and configuration on this machine's disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aggbuffer.errors import BufferFileError, SearchError
from aggbuffer.files import write_bytes
from aggbuffer.io import read_header, save
from aggbuffer.model import BufferedGNN
from aggbuffer.report.run import json_ready
from aggbuffer.result import FitResult
from aggbuffer.sweep.identity import digest_of
from aggbuffer.sweep.job import Job
from aggbuffer.sweep.locks import locked
from aggbuffer.sweep.records import TrialRecord

BUFFER, CONFIGURATION = "best.aggbuffer.safetensors", "best.json"


class BestFiles:
    """``best.aggbuffer.safetensors`` and ``best.json`` in a folder that several workers may write to.

    Args:
        out: The folder.
        identity: What the search is of.
        study: Its name.
        base: What the base itself scores on validation nodes.
    """

    def __init__(self, out: Path, identity: Mapping[str, Any], study: str, base: Mapping[str, float]) -> None:
        self.buffer, self._configuration = out / BUFFER, out / CONFIGURATION
        self._search, self._study, self._base = digest_of(identity), study, base
        self._lock = out / ".best.lock"
        self._held()

    def offer(self, job: Job, record: TrialRecord, model: BufferedGNN, result: FitResult) -> None:
        """Keep a trial's buffer if it is better than what is there."""
        with locked(self._lock):
            held = self._held()
            if held is None or _order(record) < held:
                self._write(job, record, model, result, refitted=False)

    def ensure(self, job: Job, best: TrialRecord) -> None:
        """Have the files hold the best trial; where its worker wrote elsewhere, or died, fit it again here."""
        with locked(self._lock):
            held = self._held()
            if held is None or held[1] != best.point:
                with job.attached() as model:
                    self._write(job, best, model, job.fit(model, best.settings, []), refitted=True)
            elif not self._configuration.exists():
                self._configure(job, best, refitted=False)

    def _write(self, job: Job, record: TrialRecord, model: BufferedGNN, result: FitResult, *, refitted: bool) -> None:
        extra = {
            "search": self._search,
            "study": self._study,
            "point": str(record.point),
            "score": repr(record.score),
            "seed": str(result.config.seed),
            "best_epoch": str(result.best_epoch),
        }
        self._configuration.unlink(missing_ok=True)  # never beside a buffer that is not its own
        save(model, self.buffer, extra=extra)
        self._configure(job, record, refitted=refitted)

    def _configure(self, job: Job, record: TrialRecord, *, refitted: bool) -> None:
        found: dict[str, Any] = {
            "study": self._study,
            "trial": record.number,
            "settings": record.settings,
            "monitor": job.config.monitor,
            "score": record.score,
            "val_loss": record.val_loss,
            "val_accuracy": record.val_accuracy,
            "best_epoch": record.best_epoch,
            "base": dict(self._base),
            "fit": job.config.override(**record.settings).to_dict(),
            "buffer": self.buffer.name,
            "refitted": refitted,
        }
        write_bytes((json.dumps(json_ready(found), indent=2) + "\n").encode(), self._configuration)

    def _held(self) -> tuple[float, int] | None:
        """Score and point of the buffer that is there.

        Raises:
            SearchError: If it is not of this search.
        """
        if not self.buffer.exists():
            return None
        try:
            extra = read_header(self.buffer).extra
            if (extra["search"], extra["study"]) == (self._search, self._study):
                return float(extra["score"]), int(extra["point"])
        except (BufferFileError, KeyError, ValueError) as error:
            if isinstance(error, BufferFileError):
                raise SearchError(f"{error} Move it away, or name another folder.") from error
        raise SearchError(f"{self.buffer} is of another search; name another folder.")


def _order(record: TrialRecord) -> tuple[float, int]:
    assert record.score is not None
    assert record.point is not None
    return record.score, record.point
