"""Search settings of ``fit`` on validation nodes, alone or together with other workers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from aggbuffer.config import BufferConfig, FitConfig, PathLike, check_integer, check_number
from aggbuffer.errors import ConfigError, SearchError
from aggbuffer.extras import require
from aggbuffer.files import checked_path
from aggbuffer.forward import Forward
from aggbuffer.sweep.best import BestFiles
from aggbuffer.sweep.board import Board
from aggbuffer.sweep.identity import identity_of
from aggbuffer.sweep.job import Job, scores
from aggbuffer.sweep.page import write_page
from aggbuffer.sweep.result import SweepResult, write_tables
from aggbuffer.sweep.space import Range, Space
from aggbuffer.sweep.storage import open_storage, optuna_through_our_log

NAME = "sweep"
LOST_AFTER = 60.0
_TRIALS_OF_A_RANGE = 50


def sweep(
    gnn: nn.Module,
    data: object,
    out: PathLike,
    *,
    space: Space | Mapping[str, Any] | PathLike | None = None,
    trials: int | None = None,
    storage: PathLike | None = None,
    name: str = NAME,
    seed: int = 0,
    config: FitConfig | None = None,
    buffer_config: BufferConfig | None = None,
    forward: Forward | None = None,
    train_mask: str | Tensor = "train_mask",
    val_mask: str | Tensor = "val_mask",
    prune: bool = True,
    lost_after: float = LOST_AFTER,
    progress: bool | None = None,
    **overrides: Any,
) -> SweepResult:
    """Find the settings whose buffer does best on validation nodes; test nodes play no part.

    The same call in other processes, or on other machines with the same ``storage``, shares the work: every point of
    the space is tried once, and the point of a worker that dies is tried again. Called again after an interruption, it
    goes on. ``gnn`` is as it was afterwards.

    Args:
        gnn: The trained base.
        data: Its graph, with labels and validation nodes.
        out: A folder for the best buffer and its configuration, the tables of all trials, and the search's page.
        space: What to try: for each setting of :class:`FitConfig` a list of choices or a range such as
            ``{"low": 1e-3, "high": 1e-1, "log": True}``, or a JSON or TOML file of these; by default the paper's space.
        trials: How many points to try: by default all of a grid, and 50 where there is a range.
        storage: A ``postgresql://`` address or the path of a journal file; by default a journal file in ``out``.
        name: Of the study in the storage.
        seed: Of every fit, and of the order in which points are tried.
        config: Settings that are not searched; single ones may be given as keywords instead.
        buffer_config: As for :func:`aggbuffer.attach`.
        forward: As for :func:`aggbuffer.attach`.
        train_mask: As for :func:`aggbuffer.fit`.
        val_mask: Likewise.
        prune: Give up fits that, after ``patience`` epochs, are worse than the median of those before.
        lost_after: Seconds without a sign of life after which a worker counts as lost, in PostgreSQL.
        progress: Show progress; by default where standard error is a terminal.

    Raises:
        AggBufferError: For input that cannot be used, or a study that was made for another search.

    Example:
        >>> result = aggbuffer.sweep(gnn, data, "cora-sweep")
        >>> model = aggbuffer.load(gnn, result.file)
    """
    require("optuna", "sweep", "A search")
    from aggbuffer.sweep.study import SharedStudy
    from aggbuffer.sweep.worker import Worker

    searched = Space.of(space)
    fixed = _fixed(config, searched, seed, overrides)
    points = searched.points(_checked_trials(trials, searched), seed)
    check_number("lost_after", lost_after, 2, math.inf)
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"The name of the study is {name!r}; expected a word or more.")
    job = Job(gnn, data, train_mask, val_mask, fixed, buffer_config, forward)
    base = scores(job.check())
    identity = identity_of(job, searched)
    folder = _folder(out)
    best_files = BestFiles(folder, identity, name, base)
    with (
        optuna_through_our_log(),
        closing(open_storage(storage, folder, name, lost_after)) as opened,
        Board(progress, fixed.monitor) as board,
    ):
        prune_after = _longest(searched, fixed, "patience") if prune else None
        study = SharedStudy(opened, name, identity, searched, points, seed=seed, prune_after=prune_after)

        def outcome() -> SweepResult:
            return SweepResult.of(study.records(), points, name, searched, fixed, base, folder, opened)

        try:
            Worker(study, job, best_files, board.show, board.tell).run()
        except KeyboardInterrupt:
            with suppress(SearchError):  # nothing to tell yet
                write_outcome(outcome())
            raise
        result = outcome()
        best_files.ensure(job, result.best)
        write_outcome(result)
        return result


def write_outcome(result: SweepResult) -> None:
    """Write the tables of all trials and the page."""
    write_tables(result)
    write_page(result)


def _fixed(config: FitConfig | None, space: Space, seed: int, overrides: Mapping[str, Any]) -> FitConfig:
    config = FitConfig() if config is None else config
    if not isinstance(config, FitConfig):
        raise ConfigError(f"config is a {type(config).__name__}; expected a FitConfig, or its settings as keywords.")
    for name in overrides:
        if name in space.settings:
            raise ConfigError(f"{name} is searched and given as well; leave one of them out.")
    return config.override(seed=seed, **overrides)


def _checked_trials(trials: int | None, space: Space) -> int | None:
    if trials is None:
        return None if space.finite else _TRIALS_OF_A_RANGE
    check_integer("trials", trials, 1)
    return trials


def _longest(space: Space, config: FitConfig, name: str) -> int:
    """The largest value that a setting can have."""
    values = space.settings.get(name, (getattr(config, name),))
    return int(values.high if isinstance(values, Range) else max(values))


def _folder(out: PathLike) -> Path:
    folder = checked_path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SearchError(f"The folder {folder} cannot be made ({error.strerror or error}); name another.") from error
    return folder
