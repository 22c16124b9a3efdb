"""What a study knows of its trials, in this library's words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

State = Literal["running", "complete", "pruned", "failed", "interrupted", "lost", "superseded"]

SETTLES: tuple[State, ...] = ("complete", "pruned", "failed")
MOST_LOST = 5  # after so many dead workers the trial itself is suspected of killing them

POINT, WORKER, RESULT = "point", "worker", "result"  # attributes of Optuna's trials

_NAMES: dict[str, State] = {"RUNNING": "running", "COMPLETE": "complete", "PRUNED": "pruned"}


@dataclass(frozen=True)
class TrialRecord:
    """One attempt at one point of the space.

    Attributes:
        number: Of the attempt.
        point: Of the space; a lost attempt's point is tried again. None if it was lost before it had one.
        state: ``"complete"``, ``"pruned"``, ``"failed"`` (its fit is impossible), ``"lost"`` (its worker died),
            ``"interrupted"``, ``"superseded"`` (taken for lost, but its worker came back later), or ``"running"``.
        settings: What was tried.
        score: What trials are compared by, lower is better; for a pruned trial the last one.
        val_loss: Of the best epoch; None if there is none, as for accuracy and regression.
        val_accuracy: Likewise.
        best_epoch: Which that is; 0 if the base without a buffer was best.
        epochs: How many were run.
        seconds: Wall time.
        worker: Who ran it.
        reason: Why it failed.
        reported: Epochs and scores on the way.
    """

    number: int
    point: int | None
    state: State
    settings: dict[str, Any]
    score: float | None
    val_loss: float | None
    val_accuracy: float | None
    best_epoch: int | None
    epochs: int | None
    seconds: float | None
    worker: str | None
    reason: str | None
    reported: list[tuple[int, float]]

    @classmethod
    def of(cls, trial: FrozenTrial) -> TrialRecord:
        known = trial.user_attrs.get(RESULT, {})
        seconds = trial.duration.total_seconds() if trial.duration is not None else None
        return cls(
            number=trial.number,
            point=trial.user_attrs.get(POINT),
            state=_NAMES.get(trial.state.name) or known.get("outcome", "lost"),
            settings=dict(trial.params),
            score=trial.value,
            val_loss=known.get("val_loss"),
            val_accuracy=known.get("val_accuracy"),
            best_epoch=known.get("best_epoch"),
            epochs=known.get("epochs"),
            seconds=known.get("seconds", seconds),
            worker=trial.user_attrs.get(WORKER),
            reason=known.get("reason"),
            reported=sorted(trial.intermediate_values.items()),
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Progress:
    """How far a search is.

    Attributes:
        points: How many there are to try.
        complete: How many of these have a score.
        pruned: How many were given up early.
        failed: How many cannot be fitted, or were lost too often.
        running: How many are being tried.
        lost: How many attempts were lost with their workers.
        best: The best so far.
        seconds_left: An estimate; None before the first trial is done.
    """

    points: int
    complete: int
    pruned: int
    failed: int
    running: int
    lost: int
    best: TrialRecord | None
    seconds_left: float | None

    @property
    def done(self) -> int:
        return self.complete + self.pruned + self.failed

    @property
    def settled(self) -> bool:
        return self.done >= self.points

    @classmethod
    def of(cls, records: Sequence[TrialRecord], points: Iterable[int]) -> Progress:
        attempts = _by_point(records)
        wanted = set(points)
        states = {point: _state_of(attempts.get(point, [])) for point in wanted}
        counts = {name: sum(state == name for state in states.values()) for name in (*SETTLES, "running")}
        left = len(wanted) - sum(counts[name] for name in SETTLES)
        times = [r.seconds for r in records if r.state in ("complete", "pruned") and r.seconds is not None]
        # A worker that is between two trials counts too, hence at least one.
        pace = sum(times) / len(times) / max(counts["running"], 1) if times else None
        return cls(
            len(wanted),
            counts["complete"],
            counts["pruned"],
            counts["failed"],
            counts["running"],
            sum(r.state == "lost" for r in records),
            best_of(records),
            None if pace is None else pace * left,
        )


def best_of(records: Iterable[TrialRecord]) -> TrialRecord | None:
    """The complete trial with the lowest score; of equals the one whose point comes first, whoever was faster."""
    complete = [record for record in records if record.state == "complete" and record.score is not None]
    return min(complete, key=lambda r: (r.score, -1 if r.point is None else r.point), default=None)


def next_point(records: Sequence[TrialRecord], points: Iterable[int]) -> int | None:
    """The first point that nobody has tried to the end or is trying."""
    attempts = _by_point(records)
    return next((point for point in points if _state_of(attempts.get(point, [])) == "open"), None)


def _by_point(records: Iterable[TrialRecord]) -> dict[int, list[TrialRecord]]:
    found: dict[int, list[TrialRecord]] = {}
    for record in records:
        if record.point is not None:
            found.setdefault(record.point, []).append(record)
    return found


def _state_of(attempts: Sequence[TrialRecord]) -> str:
    states = [record.state for record in attempts]
    settled = next((state for state in SETTLES if state in states), None)
    if settled or "running" in states:
        return settled or "running"
    return "failed" if states.count("lost") >= MOST_LOST else "open"
