"""A study that any number of workers share: who tries what, and what came of it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import StorageInternalError
from optuna.pruners import BasePruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import Trial, TrialState, create_trial

from aggbuffer.errors import SearchError
from aggbuffer.sweep.identity import difference
from aggbuffer.sweep.records import POINT, RESULT, SETTLES, Progress, State, TrialRecord, next_point
from aggbuffer.sweep.space import Range, Space
from aggbuffer.sweep.storage import Storage

logger = logging.getLogger("aggbuffer")

REPORT_EVERY = 10  # epochs
_IDENTITY = "aggbuffer"
_STARTUP_TRIALS = 5  # complete trials before the first is pruned
_PATIENCE_WITH_STORAGE = 120.0  # seconds

T = TypeVar("T")


@dataclass
class Claim:
    """A trial that this worker has for itself.

    Attributes:
        trial: Optuna's.
        point: Of the space.
        settings: What to try.
        alive: To be closed once the trial is settled; until then the others can tell that this worker is alive.
    """

    trial: Trial
    point: int
    settings: dict[str, Any]
    alive: ExitStack


class SharedStudy:
    """One worker's view of the study; every change happens while no other worker makes one.

    Optuna's own ways are not enough for "every point once, none lost": its grid sampler may give a point to two workers
    at once, and a worker that dies between making a trial and its first sign of life leaves it running for ever. So
    points are claimed under the storage's lock, by looking at all trials.
    """

    def __init__(
        self,
        storage: Storage,
        name: str,
        identity: Mapping[str, Any],
        space: Space,
        points: Sequence[int],
        *,
        seed: int,
        prune_after: int | None,
    ) -> None:
        self.storage, self.name, self.space, self.points, self.seed = storage, name, space, points, seed
        self._distributions = {setting: _distribution(values) for setting, values in space.settings.items()}
        pruner: BasePruner = NopPruner()
        if prune_after is not None:
            pruner = MedianPruner(_STARTUP_TRIALS, prune_after, n_min_trials=_STARTUP_TRIALS)
        with storage.exclusive():
            self._study = self._found_or_made(pruner)
            self._check(identity)
        self._id = storage.optuna.get_study_id_from_name(name)

    def _found_or_made(self, pruner: BasePruner) -> optuna.Study:
        storage, sampler = self.storage.optuna, RandomSampler(seed=self.seed)
        try:
            return optuna.load_study(study_name=self.name, storage=storage, sampler=sampler, pruner=pruner)
        except KeyError:
            return optuna.create_study(study_name=self.name, storage=storage, sampler=sampler, pruner=pruner)

    def _check(self, identity: Mapping[str, Any]) -> None:
        ours, theirs = json.loads(json.dumps(identity)), self._study.user_attrs.get(_IDENTITY)
        if theirs is None and not self._study.get_trials(deepcopy=False):
            self._study.set_user_attr(_IDENTITY, ours)
        elif theirs is None:
            raise SearchError(
                f"The study {self.name!r} in {self.storage.told} was not made by aggbuffer; choose another name."
            )
        elif differs := difference(ours, theirs):
            raise SearchError(
                f"The study {self.name!r} in {self.storage.told} was made {differs}; choose another name or storage."
            )

    def records(self) -> list[TrialRecord]:
        """Every attempt so far."""
        trials = self._patiently(lambda: self._study.get_trials(deepcopy=False))
        return [TrialRecord.of(trial) for trial in trials if trial.state != TrialState.WAITING]

    def progress(self) -> Progress:
        return Progress.of(self.records(), self.points)

    def claim(self) -> Claim | None:
        """The next point, for this worker alone; None if all are done or others are at the last of them."""
        return self._patiently(self._claim)

    def _claim(self) -> Claim | None:
        with ExitStack() as alive:
            with self.storage.exclusive():
                self.storage.fail_lost(self._study)
                records = self.records()
                point = next_point(records, self.points)
                if point is None:
                    return None
                trial = self._new_trial(point, records)
                alive.enter_context(self.storage.working_on(trial._trial_id))
            return Claim(trial, point, trial.params, alive.pop_all())

    def _new_trial(self, point: int, records: Sequence[TrialRecord]) -> Trial:
        settings = self._settings_of(point, records)
        if settings is not None:
            template = create_trial(
                state=TrialState.RUNNING,
                params=settings,
                distributions=self._distributions,
                user_attrs={POINT: point},
            )
            return Trial(self._study, self.storage.optuna.create_new_trial(self._id, template))
        # Another seed for every point: workers must not all draw the same.
        self._study.sampler = _tpe(self.seed + point)
        trial = Trial(self._study, self.storage.optuna.create_new_trial(self._id))
        for name, distribution in self._distributions.items():
            _suggest(trial, name, distribution)
        trial.set_user_attr(POINT, point)
        return trial

    def _settings_of(self, point: int, records: Sequence[TrialRecord]) -> dict[str, Any] | None:
        """What a point stands for; None if that is yet to be drawn."""
        if self.space.finite:
            return self.space.combination(point)
        tried = next((record for record in records if record.point == point), None)
        return None if tried is None else tried.settings

    def report(self, claim: Claim, epoch: int, score: float) -> bool:
        """Tell how a trial is going; returns whether to give it up."""
        if epoch % REPORT_EVERY:
            return False

        def told() -> bool:
            try:
                claim.trial.report(score, epoch)
            except optuna.exceptions.UpdateFinishedTrialError:
                return True  # taken for lost meanwhile: somebody else is at it
            return bool(claim.trial.should_prune())  # numpy has a bool of its own

        return self._patiently(told)

    def settle(
        self, claim: Claim, state: State, score: float | None = None, **known: float | str | None
    ) -> TrialRecord | None:
        """Put down what became of a trial.

        Args:
            claim: The trial.
            state: ``"complete"``, ``"pruned"`` or ``"failed"``.
            score: Of a complete one.
            known: Further attributes of its record.

        Returns:
            Its record; None if the trial was taken for lost meanwhile, and so is another's.
        """
        return self._patiently(lambda: self._settle(claim, state, score, known))

    def _settle(
        self, claim: Claim, state: State, score: float | None, known: Mapping[str, float | str | None]
    ) -> TrialRecord | None:
        number = claim.trial.number
        with self.storage.exclusive():
            others = [record for record in self.records() if record.point == claim.point]
            mine = next(record for record in others if record.number == number)
            if mine.state in SETTLES:  # an attempt to say so had come through
                return mine
            if mine.state != "running":
                logger.warning("Trial %d was taken for lost and is somebody else's now.", number)
                return None
            if any(record.state in SETTLES for record in others):
                state = "superseded"
            finished = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED}.get(state, TrialState.FAIL)
            claim.trial.set_user_attr(RESULT, {**known, "outcome": state})
            told = self._study.tell(number, score if state == "complete" else None, finished)
        return None if state == "superseded" else TrialRecord.of(told)

    def withdraw(self) -> None:
        """Put down what this worker is at, so that its point is free; for an interruption, which may come anywhere."""
        self._patiently(self._withdraw)

    def _withdraw(self) -> None:
        with self.storage.exclusive():
            for record in self.records():
                if record.state == "running" and record.worker == self.storage.worker:
                    trial = self.storage.optuna.get_trial_id_from_study_id_trial_number(self._id, record.number)
                    self.storage.optuna.set_trial_user_attr(trial, RESULT, {"outcome": "interrupted"})
                    self._study.tell(record.number, state=TrialState.FAIL)

    def _patiently(self, call: Callable[[], T]) -> T:
        """Try again for a while where the storage is away for a moment."""
        started, pause = time.monotonic(), 0.5
        while True:
            try:
                return call()
            except OSError as error:
                raise SearchError(
                    f"The storage {self.storage.told} cannot be used ({error.strerror or error})."
                ) from error
            except Exception as error:
                if not _is_of_storage(error):
                    raise
                if time.monotonic() - started > _PATIENCE_WITH_STORAGE:
                    raise SearchError(
                        f"The storage {self.storage.told} has been out of reach for two minutes "
                        f"({type(error).__name__}); run the same command again to go on."
                    ) from None
                logger.warning("The storage is out of reach (%s); trying again.", type(error).__name__)
            time.sleep(pause)
            pause = min(2 * pause, 10.0)


def _is_of_storage(error: Exception) -> bool:
    """Whether a database was the reason; its driver need not be installed."""
    return isinstance(error, StorageInternalError) or type(error).__module__.startswith("sqlalchemy.")


def _tpe(seed: int) -> BaseSampler:
    return TPESampler(seed=seed, constant_liar=True)


def _distribution(values: tuple[Any, ...] | Range) -> BaseDistribution:
    if not isinstance(values, Range):
        return CategoricalDistribution(values)
    if values.whole:
        return IntDistribution(int(values.low), int(values.high), values.log)
    return FloatDistribution(values.low, values.high, values.log)


def _suggest(trial: Trial, name: str, distribution: BaseDistribution) -> None:
    if isinstance(distribution, CategoricalDistribution):
        trial.suggest_categorical(name, distribution.choices)
    elif isinstance(distribution, IntDistribution):
        trial.suggest_int(name, distribution.low, distribution.high, log=distribution.log)
    elif isinstance(distribution, FloatDistribution):
        trial.suggest_float(name, distribution.low, distribution.high, log=distribution.log)
