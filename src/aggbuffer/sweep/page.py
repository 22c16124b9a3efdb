"""The page of a search: one HTML file that needs nothing but a browser."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

import torch
from markupsafe import Markup

from aggbuffer.files import write_bytes
from aggbuffer.report.templates import templates
from aggbuffer.report.told import share
from aggbuffer.sweep.board import MONITORS, describe_trial, value_text
from aggbuffer.sweep.findings import Axis, Effect, axes_of, effects
from aggbuffer.sweep.plots import Dot, Plot, Score, Trace, effect, history, parallel
from aggbuffer.sweep.records import TrialRecord
from aggbuffer.sweep.result import SweepResult
from aggbuffer.version import __version__

_BEST_SHARE = 0.1  # of the trials, to be seen among the others


def write_page(result: SweepResult) -> None:
    """Write the page to ``result.page``; the file appears whole or not at all.

    Raises:
        BufferFileError: If the file cannot be written.
    """
    write_bytes(render(result).encode(), result.page)


def render(result: SweepResult) -> str:
    """The page as text."""
    environment = templates("aggbuffer.sweep")
    environment.filters |= {"share": share, "setting": value_text}
    score = Score(result.monitor, MONITORS[result.monitor].capitalize())
    axes = axes_of(result.space)
    scored = [trial for trial in result.trials if trial.state in ("complete", "pruned") and trial.score is not None]
    found = effects(axes, scored)
    return environment.get_template("page.html.jinja").render(
        css=Markup("\n".join(_style(package) for package in ("aggbuffer.report", "aggbuffer.sweep"))),
        result=result,
        score=score,
        best=score.text(_told(result.best, score)),
        base=score.text(result.base[result.monitor]) if result.monitor in result.base else None,
        history=_history(result, scored, score),
        effects=[(e, _effect(e, scored, score)) for e in found],
        parallel=_parallel(axes, scored, score) if len(axes) > 1 else None,
        searched=[axis.name for axis in axes],
        rows=[_row(trial, score) for trial in result.trials],
        facts=_facts(result),
        version=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _style(package: str) -> str:
    return files(package).joinpath("page.css").read_text(encoding="utf-8")


def _told(trial: TrialRecord, score: Score) -> float:
    """A score as it is told: an accuracy is searched by its negative."""
    assert trial.score is not None
    return -trial.score if score.percent else trial.score


def _history(result: SweepResult, trials: Sequence[TrialRecord], score: Score) -> Plot:
    dots, so_far = [], list[tuple[float, float]]()
    for trial in trials:
        value = _told(trial, score)
        dots.append(Dot(trial.number, value, _kind(trial, result.best), describe_trial(trial, result.monitor)))
        better = not so_far or (value > so_far[-1][1] if score.percent else value < so_far[-1][1])
        if trial.state == "complete" and better:
            so_far.append((trial.number, value))
    base = result.base.get(result.monitor)
    return history(_best_last(dots), so_far, base, score)


def _effect(found: Effect, trials: Sequence[TrialRecord], score: Score) -> Plot:
    axis, complete = found.axis, [trial for trial in trials if trial.state == "complete"]
    dots = [
        Dot(axis.at(trial.settings[axis.name]), _told(trial, score), "", describe_trial(trial, score.monitor))
        for trial in complete
    ]
    sign = -1 if score.percent else 1
    means = [(at, sign * mean) for at, mean in found.means]
    return effect(axis.name, dots, axis.ticks(), means, score)


def _parallel(axes: Sequence[Axis], trials: Sequence[TrialRecord], score: Score) -> Plot:
    complete = sorted((t for t in trials if t.state == "complete"), key=lambda t: -(t.score or 0.0))
    values = [_told(trial, score) for trial in complete]
    low, high = min(values), max(values)
    first_of_best = len(complete) - max(1, round(_BEST_SHARE * len(complete)))
    traces = [
        Trace(
            [*(axis.at(trial.settings[axis.name]) for axis in axes), (value - low) / (high - low or 1.0)],
            "after" if i >= first_of_best else "before",
            describe_trial(trial, score.monitor),
        )
        for i, (trial, value) in enumerate(zip(complete, values, strict=True))
    ]
    return parallel(
        [
            *((axis.name, axis.ticks()) for axis in axes),
            (score.name, [(0.0, score.text(low)), (1.0, score.text(high))]),
        ],
        traces,
    )


def _kind(trial: TrialRecord, best: TrialRecord) -> str:
    if trial.number == best.number:
        return "best"
    return "pruned" if trial.state == "pruned" else ""


def _best_last(dots: Sequence[Dot]) -> list[Dot]:
    return sorted(dots, key=lambda dot: dot.kind == "best")


def _row(trial: TrialRecord, score: Score) -> dict[str, Any]:
    return {
        "trial": trial,
        "score": None if trial.score is None else _told(trial, score),
        "told": "–" if trial.score is None else score.text(_told(trial, score)),
    }


def _facts(result: SweepResult) -> list[tuple[str, list[tuple[str, str]]]]:
    space = [
        (name, ", ".join(map(value_text, found)) if isinstance(found, tuple) else _range(found.to_dict()))
        for name, found in result.space.settings.items()
    ]
    progress = result.progress
    fixed = [(k, str(v)) for k, v in result.config.to_dict().items() if k not in result.space.settings]
    workers = len({trial.worker for trial in result.trials if trial.worker})
    return [
        (
            "What was searched",
            [
                ("Study", result.name),
                ("Points", f"{progress.points}: {progress.complete} complete, {progress.pruned} pruned, "
                 f"{progress.failed} failed; {progress.lost} attempts lost and tried again"),
                ("Workers", f"{workers}; trials kept in: {result.storage_kind}"),
                *space,
            ],
        ),
        ("Settings of every fit", fixed),
        (
            "Versions",
            [
                ("aggbuffer", __version__),
                ("torch", str(torch.__version__)),
                ("python", platform.python_version()),
            ],
        ),
    ]  # fmt: skip


def _range(told: dict[str, Any]) -> str:
    return f"{value_text(told['low'])} to {value_text(told['high'])}" + (", logarithmic" if told["log"] else "")
