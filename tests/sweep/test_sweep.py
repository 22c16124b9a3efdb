"""A search with one worker: what it measures, what it leaves, how it goes on."""

from __future__ import annotations

import csv
import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from sweep_cases import POINTS, SHORT, SPACE, each_once, journal_records
from torch import nn

import aggbuffer
from aggbuffer import AggBufferError, FitConfig, SweepResult
from aggbuffer.errors import ConfigError, GraphError, SearchError
from aggbuffer.losses import supervised
from aggbuffer.sweep import PAPER_SPACE
from aggbuffer.targets import Labels
from conftest import Footprint
from helpers_fit import base, community_graph, refused


def search(out: Path, **options: Any) -> SweepResult:
    return aggbuffer.sweep(base(), community_graph(), out, **{"space": SPACE, **SHORT, **options})


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    """The whole grid, nothing pruned."""
    return search(tmp_path_factory.mktemp("search"), prune=False)


def validation_loss(model: nn.Module) -> float:
    data = community_graph()
    nodes = data.val_mask.nonzero().squeeze(-1)
    with torch.no_grad():
        logits = model(data.x, data.edge_index)
    return supervised(logits, Labels.of(data.y, 90, 3, nodes), nodes).item()


def test_every_combination_is_measured_once_by_the_librarys_own_fit(found: SweepResult) -> None:
    each_once(found.trials)
    assert found.progress.complete == POINTS
    model = aggbuffer.attach(base(), community_graph())
    for trial in found.trials[:3]:
        for parameter in model.buffer_parameters():
            nn.init.zeros_(parameter)
        result = aggbuffer.fit(model, community_graph(), seed=0, **SHORT, **trial.settings)
        assert result.best_score == pytest.approx(trial.score, rel=1e-6)
        assert (result.best_epoch, result.epochs) == (trial.best_epoch, trial.epochs)
    aggbuffer.detach(model)


def test_the_best_is_the_lowest_validation_loss_and_its_buffer_gives_it(found: SweepResult) -> None:
    assert found.best.score == min(trial.score for trial in found.trials if trial.score is not None)
    assert found.config == FitConfig(**{**found.best.settings, "max_epochs": 15})
    model = aggbuffer.load(base(), found.file)
    loss = validation_loss(model)
    assert validation_loss(aggbuffer.detach(model)) == pytest.approx(found.base["val_loss"], rel=1e-6)
    assert loss == pytest.approx(found.best.val_loss, rel=1e-6)
    told = json.loads((found.file.parent / "best.json").read_text())
    assert told["val_loss"] == found.best.val_loss
    assert told["fit"] == found.config.to_dict()
    assert told["trial"] == found.best.number
    assert not told["refitted"]


def test_the_tables_hold_every_trial(found: SweepResult) -> None:
    folder = found.file.parent
    with (folder / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["val_loss"]) for row in rows] == [trial.val_loss for trial in found.trials]
    assert {(row["strength"], row["drop_edge"], row["dropout"]) for row in rows} == {
        (str(a), str(b), str(c)) for a in (1.0, 0.5) for b in (0.2, 0.7) for c in (0.0, 0.5)
    }
    records = json.loads((folder / "trials.json").read_text())
    assert [record["point"] for record in records] == [trial.point for trial in found.trials]
    assert all([epoch for epoch, _ in record["reported"]] == [10] for record in records)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["complete"] == POINTS


def test_the_base_is_as_it_was_also_after_a_failure(tmp_path: Path) -> None:
    gnn = base()
    footprint = Footprint(gnn)
    search(tmp_path / "one", trials=2)
    footprint.check()
    with pytest.raises(AggBufferError):
        search(tmp_path / "two", val_mask="no_such_mask")
    footprint.check()


def test_test_nodes_play_no_part(found: SweepResult, tmp_path: Path) -> None:
    data = community_graph()
    data.test_mask = ~data.test_mask
    other = aggbuffer.sweep(base(), data, tmp_path, space=SPACE, prune=False, trials=3, **SHORT)
    assert [trial.score for trial in other.trials] == [trial.score for trial in found.trials[:3]]


def test_calling_it_again_measures_nothing_anew_and_more_trials_go_on(tmp_path: Path) -> None:
    first = search(tmp_path, trials=3)
    assert search(tmp_path, trials=3).trials == first.trials
    more = search(tmp_path)
    assert more.trials[:3] == first.trials
    each_once(more.trials)


def test_an_interrupted_trial_is_taken_up_again(tmp_path: Path) -> None:
    calls = 0

    def forward(model: nn.Module, data: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 150:
            raise KeyboardInterrupt
        out: torch.Tensor = model(data.x, data.edge_index)
        return out

    footprint = Footprint(base())
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path, forward=forward, prune=False)
    footprint.check()
    states = [record.state for record in journal_records(tmp_path / "search.journal")]
    assert states[-1] == "interrupted"
    assert set(states[:-1]) == {"complete"}
    assert (tmp_path / "sweep.html").exists()
    result = search(tmp_path, forward=forward, prune=False)
    each_once(result.trials)
    assert len(result.trials) == POINTS + 1
    assert result.progress.lost == 0


def test_a_range_is_searched_and_its_trials_differ(tmp_path: Path) -> None:
    space = {"lr": {"low": 1e-3, "high": 0.1, "log": True}, "patience": {"low": 5, "high": 9}, "strength": [0.5, 1]}
    result = search(tmp_path, space=space, trials=13, max_epochs=4)  # more than TPE draws at random
    each_once(result.trials, 13)
    rates = {trial.settings["lr"] for trial in result.trials}
    assert len(rates) == 13
    assert all(1e-3 <= rate <= 0.1 for rate in rates)
    assert all(isinstance(trial.settings["patience"], int) for trial in result.trials)
    assert result.config.lr == result.best.settings["lr"]


def test_pruned_trials_count_as_done_and_are_never_the_best(tmp_path: Path) -> None:
    result = search(tmp_path, space=None, trials=16, max_epochs=20, patience=10)
    assert result.progress.pruned > 0
    assert result.progress.complete + result.progress.pruned == len(result.trials) == 16
    assert len({trial.point for trial in result.trials}) == 16
    assert all(trial.epochs in (10, 20) for trial in result.trials if trial.state == "pruned")
    assert result.best.state == "complete"


def test_a_fit_that_cannot_be_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    result = search(tmp_path, space={"lr": [1e38, 1e-2]})
    failed = next(trial for trial in result.trials if trial.state == "failed")
    assert failed.settings == {"lr": 1e38}
    assert "The loss became" in str(failed.reason)
    assert result.best.settings == {"lr": 1e-2}
    assert "The loss became" in result.page.read_text()
    with refused("No trial came through .*The loss became", SearchError):
        search(tmp_path / "none", space={"lr": [1e38]})


def test_accuracy_can_be_searched(tmp_path: Path) -> None:
    result = search(tmp_path, trials=4, monitor="val_accuracy")
    assert result.best.val_accuracy == max(trial.val_accuracy for trial in result.trials)  # type: ignore[type-var]
    assert result.best.score == -result.best.val_accuracy  # type: ignore[operator]
    assert f"{100 * result.best.val_accuracy:.2f} %" in result.page.read_text()  # type: ignore[operator]


def test_equal_scores_are_won_by_the_first_point_whoever_was_first(tmp_path: Path) -> None:
    result = search(tmp_path, max_epochs=1, patience=1, lr=1e-12)
    assert len({trial.score for trial in result.trials}) < len(result.trials)
    equals = [trial.point for trial in result.trials if trial.score == result.best.score]
    assert result.best.point == min(point for point in equals if point is not None)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"gnn": "sage"}, "for another base model"),
        ({"data": "other"}, "for another graph"),
        ({"space": {"strength": [1, 0.5]}}, "for another space"),
        ({"max_epochs": 16}, "with other settings of the fits"),
        ({"seed": 1}, "with other settings of the fits"),
        ({"buffer_config": aggbuffer.BufferConfig(bias=True)}, "with other settings of the buffer"),
    ],
)
def test_a_study_of_something_else_is_refused(found: SweepResult, tmp_path: Path, change: Any, told: str) -> None:
    journal = found.file.parent / "search.journal"
    before = journal.read_bytes()
    gnn = base(change.pop("gnn", "gcn"))
    data = community_graph(1 if change.pop("data", None) else 0)
    options = {"space": SPACE, **SHORT, "storage": journal, **change}
    with refused(f"study 'sweep' in .* was made {told}", SearchError):
        aggbuffer.sweep(gnn, data, tmp_path, **options)
    assert journal.read_bytes() == before
    assert not (tmp_path / "best.json").exists()


def test_the_folder_of_another_search_is_refused(found: SweepResult, tmp_path: Path) -> None:
    with refused("is of another search", SearchError):
        search(found.file.parent, storage=tmp_path / "new.journal", seed=5)
    with refused("is of another search", SearchError):
        search(found.file.parent, name="another")


def test_several_studies_share_a_journal(tmp_path: Path) -> None:
    one = search(tmp_path / "one", storage=tmp_path / "all.journal", name="one", trials=1)
    two = search(tmp_path / "two", storage=tmp_path / "all.journal", name="two", trials=1, seed=1)
    assert len(one.trials) == len(two.trials) == 1


def test_files_that_are_no_journals_are_left_alone(tmp_path: Path) -> None:
    for name, content in (("a.json", b'{"precious": 1}'), ("b.bin", bytes(range(256))), ("c.csv", b"x\n1\n")):
        (tmp_path / name).write_bytes(content)
        with refused("is no journal of a search", SearchError):
            search(tmp_path / "out", storage=tmp_path / name)
        assert (tmp_path / name).read_bytes() == content
        assert not (tmp_path / f"{name}.lock").exists()


@pytest.mark.parametrize(
    ("options", "told", "kind"),
    [
        ({"storage": "sqlite:///x.db"}, "SQLite cannot be shared", ConfigError),
        ({"storage": "mysql://me:pw@h/d"}, "a mysql:// address; expected postgresql://", ConfigError),
        ({"monitor": "rc_loss"}, "rc_loss", ConfigError),
        ({"strength": 0.3}, "strength is searched and given as well", ConfigError),
        ({"no_such": 0.3}, "no setting 'no_such'", ConfigError),
        ({"trials": 0}, "trials must be a whole number", ConfigError),
        ({"name": " "}, "name of the study", ConfigError),
        ({"lost_after": 1}, "lost_after must be in", ConfigError),
        ({"config": {"lr": 1}}, "config is a dict", ConfigError),
        ({"val_mask": "nothing"}, "labels .y. and a val_mask", GraphError),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    tmp_path: Path, options: Any, told: str, kind: type[AggBufferError]
) -> None:
    with refused(told, kind):
        search(tmp_path / "out", **options)
    assert not (tmp_path / "out" / "search.journal").exists()


def test_optuna_is_silent_and_its_own_logging_comes_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    theirs = logging.getLogger("optuna")
    before = theirs.handlers, theirs.level, theirs.propagate
    search(tmp_path, trials=2)
    assert (theirs.handlers, theirs.level, theirs.propagate) == before
    assert capfd.readouterr() == ("", "")


def test_the_papers_space_is_what_the_paper_package_searches() -> None:
    from paper.settings import GRIDS

    assert dict(PAPER_SPACE) == GRIDS["GCN_B paper"]
