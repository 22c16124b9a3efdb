"""From attempts to what is left to do, and how it is told."""

from __future__ import annotations

from typing import Any

import pytest

from aggbuffer.sweep.board import describe, describe_trial, time_text
from aggbuffer.sweep.records import MOST_LOST, Progress, State, TrialRecord, best_of, next_point


def attempt(number: int, point: int | None, state: State, score: float | None = None, **known: Any) -> TrialRecord:
    values: dict[str, Any] = {
        "settings": {"dropout": 0.5},
        "val_loss": score,
        "val_accuracy": None,
        "best_epoch": 1,
        "epochs": 7,
        "seconds": 10.0,
        "worker": "w",
        "reason": None,
        "reported": [],
        **known,
    }
    return TrialRecord(number=number, point=point, state=state, score=score, **values)


@pytest.mark.parametrize(
    ("states", "left"),
    [
        ([], 5),
        (["running"], None),
        (["complete"], None),
        (["pruned"], None),
        (["failed"], None),
        (["lost"], 5),
        (["lost", "running"], None),
        (["lost", "complete"], None),
        (["interrupted"], 5),
        (["interrupted"] * 9, 5),
        (["superseded"], 5),
        (["lost"] * (MOST_LOST - 1), 5),
        (["lost"] * MOST_LOST, None),
    ],
)
def test_which_points_are_left(states: list[State], left: int | None) -> None:
    records = [attempt(i, 5, state, 1.0) for i, state in enumerate(states)]
    assert next_point([*records, attempt(99, None, "lost")], [5]) == left


def test_points_are_taken_in_their_order() -> None:
    records = [attempt(0, 7, "complete", 1.0), attempt(1, 3, "running"), attempt(2, 9, "lost")]
    assert next_point(records, [7, 3, 9, 4]) == 9


def test_the_best_is_complete_and_of_equals_the_first_point() -> None:
    records = [
        attempt(0, 4, "complete", 0.5),
        attempt(1, 2, "complete", 0.5),
        attempt(2, 1, "pruned", 0.1),
        attempt(3, 0, "superseded", 0.1),
        attempt(4, 3, "complete", 0.6),
    ]
    best = best_of(records)
    assert best is not None
    assert best.point == 2
    assert best_of([]) is None


def test_progress_counts_points_and_guesses_the_time_left() -> None:
    records = [
        attempt(0, 0, "complete", 0.5),
        attempt(1, 1, "lost"),
        attempt(2, 1, "pruned", 0.9, seconds=20.0),
        attempt(3, 2, "running", seconds=None),
        attempt(4, 3, "running", seconds=None),
        attempt(5, 4, "failed", reason="It cannot be."),
    ]
    progress = Progress.of(records, range(7))
    assert (progress.points, progress.done, progress.running, progress.lost) == (7, 3, 2, 1)
    assert not progress.settled
    assert progress.seconds_left == pytest.approx(15.0 * 4 / 2)  # 15 s each, four points left, two workers
    told = describe(progress, "val_loss")
    assert told == "2 running, 1 pruned, 1 failed, 1 lost; best validation loss 0.5000; 30 s left"
    found = Progress.of([attempt(0, 0, "complete", -0.875)], [0])  # accuracies are searched by their negative
    assert describe(found, "val_accuracy") == "best validation accuracy 87.50 %"
    assert describe_trial(records[0], "val_loss") == "trial 0: dropout=0.5, validation loss 0.5000 after 7 epochs"
    assert describe_trial(records[5], "val_loss") == "trial 5: dropout=0.5, failed: It cannot be."


def test_times_are_told_in_fitting_units() -> None:
    assert [time_text(s) for s in (0.2, 45, 100, 3600, 9000)] == ["1 s", "45 s", "2 min", "60 min", "2 h 30 min"]
