"""One worker: it claims a point, fits, tells, and goes on until no point is left."""

from __future__ import annotations

import time
from collections.abc import Callable

from aggbuffer.errors import AggBufferError, SearchError
from aggbuffer.model import BufferedGNN
from aggbuffer.result import EpochRecord, FitResult
from aggbuffer.sweep.best import BestFiles
from aggbuffer.sweep.job import Job, scores
from aggbuffer.sweep.records import Progress, TrialRecord
from aggbuffer.sweep.study import Claim, SharedStudy

_SECONDS_BETWEEN_LOOKS = 1.0


class Worker:
    """Does its share of a search.

    Args:
        study: Shared with the others.
        job: What every trial has in common.
        best: Where the best buffer goes.
        show: Told how far the search is, now and then.
        tell: Told of every trial of this worker's, in a line.
    """

    def __init__(
        self,
        study: SharedStudy,
        job: Job,
        best: BestFiles,
        show: Callable[[Progress], None],
        tell: Callable[[TrialRecord], None],
    ) -> None:
        self.study, self.job, self.best, self.show, self.tell = study, job, best, show, tell
        self._looked = 0.0

    def run(self) -> None:
        """Return once every point is settled, by whomever: a point whose worker dies late is taken over."""
        try:
            self._until_settled()
        except KeyboardInterrupt:
            self.study.withdraw()
            raise

    def _until_settled(self) -> None:
        while True:
            claim = self.study.claim()
            if claim is not None:
                self._try(claim)
                self._look(now=True)
            elif self._look(now=True).settled:
                return
            else:
                time.sleep(_SECONDS_BETWEEN_LOOKS)

    def _try(self, claim: Claim) -> None:
        pruned = False

        def heard(record: EpochRecord) -> bool:
            nonlocal pruned
            self._look()
            pruned = self.study.report(claim, record.epoch, record.score)
            return pruned

        with claim.alive, self.job.attached() as model:
            try:
                result = self.job.fit(model, claim.settings, [heard])
            except SearchError:  # of the storage
                raise
            except AggBufferError as error:
                self._failed(claim, str(error))
            except Exception as error:  # of the model's own code, or of memory: other settings may fare better
                self._failed(claim, ": ".join([type(error).__name__, *str(error).splitlines()[:1]]))
            else:
                self._finished(claim, model, result, pruned)

    def _finished(self, claim: Claim, model: BufferedGNN, result: FitResult, pruned: bool) -> None:
        known = {
            **scores(result),
            "best_epoch": result.best_epoch,
            "epochs": result.epochs,
            "seconds": round(result.seconds, 3),
        }
        record = self.study.settle(claim, "pruned" if pruned else "complete", result.best_score, **known)
        if record is None:
            return
        if record.state == "complete":
            self.best.offer(self.job, record, model, result)
        self.tell(record)

    def _failed(self, claim: Claim, reason: str) -> None:
        record = self.study.settle(claim, "failed", reason=reason)
        if record is not None:
            self.tell(record)

    def _look(self, *, now: bool = False) -> Progress:
        if now or time.monotonic() - self._looked >= _SECONDS_BETWEEN_LOOKS:
            self._progress = self.study.progress()
            self._looked = time.monotonic()
            self.show(self._progress)
        return self._progress
