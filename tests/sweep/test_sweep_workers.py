"""Several workers on a journal file: every point once, none lost, whoever dies."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from optuna.trial import TrialState, create_trial
from sweep_cases import (
    POINTS,
    SHORT,
    SPACE,
    each_once,
    end,
    journal_records,
    kill_in_a_trial,
    process_of,
    start,
    write_inputs,
)

import aggbuffer
from aggbuffer.sweep.journal import JournalFile
from aggbuffer.sweep.locks import is_held
from aggbuffer.sweep.records import MOST_LOST
from aggbuffer.sweep.space import Space
from aggbuffer.sweep.storage import Storage, open_storage
from aggbuffer.sweep.study import Claim, SharedStudy
from helpers_fit import base, community_graph


def joined(storage: Storage) -> SharedStudy:
    space = Space.of(SPACE)
    return SharedStudy(storage, "sweep", {"format": 1}, space, space.points(None, 0), seed=0, prune_after=None)


@contextlib.contextmanager
def worker(path: Path) -> Iterator[SharedStudy]:
    storage = JournalFile(path)
    try:
        yield joined(storage)
    finally:
        storage.close()


def die(study: SharedStudy) -> None:
    """What the system does for a process that ends: its files are closed, nothing else happens."""
    storage = study.storage
    assert isinstance(storage, JournalFile)
    storage._held.close()


def settle(study: SharedStudy, claim: Claim, score: float = 1.0) -> None:
    study.settle(claim, "complete", score)
    claim.alive.close()


def test_workers_that_start_at_once_on_nothing_share_the_points(tmp_path: Path) -> None:
    path, ready = tmp_path / "x.journal", threading.Barrier(4)
    claimed: list[int] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            ready.wait()
            with worker(path) as study:
                while (claim := study.claim()) is not None:
                    claimed.append(claim.point)
                    settle(study, claim)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(claimed) == list(range(POINTS))
    each_once(journal_records(path))
    assert not list(tmp_path.glob("*.workers"))


def test_the_point_of_a_dead_worker_is_the_next_ones_at_once(tmp_path: Path) -> None:
    with worker(tmp_path / "x") as alive, worker(tmp_path / "x") as dying:
        lost = dying.claim()
        other = alive.claim()
        assert lost is not None
        assert other is not None
        assert lost.point != other.point
        assert alive.progress().running == 2
        die(dying)
        again = alive.claim()
        assert again is not None
        assert again.point == lost.point
        assert again.settings == lost.settings
        assert alive.progress().lost == 1


def test_a_worker_that_was_taken_for_lost_records_nothing(tmp_path: Path) -> None:
    with worker(tmp_path / "x") as alive, worker(tmp_path / "x") as slow:
        lost = slow.claim()
        assert lost is not None
        die(slow)
        again = alive.claim()
        assert again is not None
        assert slow.report(lost, 10, 0.5)  # told to stop
        assert slow.settle(lost, "complete", 0.5) is None
        settle(alive, again, 0.7)
        scores = [record.score for record in alive.records() if record.state == "complete"]
        assert scores == [0.7]


def test_a_trial_whose_maker_died_before_its_first_sign_of_life_is_not_lost(tmp_path: Path) -> None:
    with worker(tmp_path / "x") as study:
        study.storage.optuna.create_new_trial(0, create_trial(state=TrialState.RUNNING, user_attrs={"point": 0}))
        study.storage.optuna.create_new_trial(0)
        while (claim := study.claim()) is not None:
            settle(study, claim)
        each_once(study.records())
        assert study.progress().lost == 2


def test_what_a_worker_withdraws_from_is_free_at_once_and_not_counted_as_lost(tmp_path: Path) -> None:
    with worker(tmp_path / "x") as staying, worker(tmp_path / "x") as leaving:
        kept, put_down = staying.claim(), leaving.claim()
        assert kept is not None
        assert put_down is not None
        leaving.withdraw()
        again = staying.claim()
        assert again is not None
        assert again.point == put_down.point
        assert [record.state for record in staying.records()] == ["running", "interrupted", "running"]
        assert staying.progress().lost == 0


def test_a_point_that_kills_its_workers_is_given_up(tmp_path: Path) -> None:
    with worker(tmp_path / "x") as alive:
        for _ in range(MOST_LOST):
            with worker(tmp_path / "x") as dying:
                claim = dying.claim()
                assert claim is not None
                assert claim.point == alive.points[0]
                die(dying)
        while (claim := alive.claim()) is not None:
            settle(alive, claim)
        progress = alive.progress()
        assert (progress.complete, progress.failed, progress.lost) == (POINTS - 1, 1, MOST_LOST)
        assert progress.settled


def test_half_a_line_of_a_worker_that_died_writing_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with worker(path) as study:
        claim = study.claim()
        assert claim is not None
        settle(study, claim)
    with path.open("ab") as file:
        file.write(b'{"op_code":6,"wor')
    with worker(path) as study:
        while (claim := study.claim()) is not None:
            settle(study, claim)
    each_once(journal_records(path))


def test_a_better_buffer_of_another_folder_is_fitted_again_here(tmp_path: Path) -> None:
    options = {"space": SPACE, **SHORT, "prune": False, "storage": tmp_path / "shared.journal"}
    there = aggbuffer.sweep(base(), community_graph(), tmp_path / "there", **options)  # type: ignore[arg-type]
    here = aggbuffer.sweep(base(), community_graph(), tmp_path / "here", **options)  # type: ignore[arg-type]
    assert here.best == there.best
    told = json.loads((tmp_path / "here" / "best.json").read_text())
    assert told["refitted"]
    assert told["val_loss"] == there.best.val_loss
    models = [aggbuffer.load(base(), there.file)]
    ours = [parameter.detach().clone() for parameter in models[0].buffer_parameters()]
    aggbuffer.detach(models[0])
    again = aggbuffer.load(base(), here.file)
    assert all((a == b).all() for a, b in zip(ours, again.buffer_parameters(), strict=True))
    aggbuffer.detach(again)


def test_one_of_two_commands_finishes_the_search_although_the_other_is_killed(tmp_path: Path) -> None:
    inputs, out = write_inputs(tmp_path, epochs=150), tmp_path / "out"
    processes = [start(inputs, out, "--no-prune", "--json") for _ in range(2)]
    try:
        killed = kill_in_a_trial(lambda: journal_records(out / "search.journal"))
        told = [process.communicate(timeout=600) for process in processes]
    finally:
        end(processes)
    codes = [process.returncode for process in processes]
    assert sorted(codes) == [-signal.SIGKILL, 0], told
    stdout, stderr = told[codes.index(0)]
    assert json.loads(stdout)["complete"] == POINTS
    assert json.loads(stdout)["lost"] == 1
    assert "Traceback" not in stderr
    records = journal_records(out / "search.journal")
    each_once(records)
    assert [record.number for record in records if record.state == "lost"] == [killed.number]
    again = next(record for record in records if record.point == killed.point and record.state == "complete")
    assert again.worker != killed.worker
    assert not (out / "search.journal.workers").exists()


@pytest.mark.slow
def test_four_commands_at_once_on_nothing_share_a_journal_although_one_is_killed(tmp_path: Path) -> None:
    inputs, out = write_inputs(tmp_path, epochs=150), tmp_path / "out"
    processes = [start(inputs, out, "--no-prune") for _ in range(4)]
    try:
        killed = kill_in_a_trial(lambda: journal_records(out / "search.journal"))
        told = [process.communicate(timeout=600) for process in processes]
    finally:
        end(processes)
    assert sorted(process.returncode for process in processes) == [-signal.SIGKILL, 0, 0, 0], told
    records = journal_records(out / "search.journal")
    each_once(records)
    assert [record.number for record in records if record.state == "lost"] == [killed.number]
    assert len(records) == POINTS + 1


@pytest.mark.slow
def test_the_death_of_a_further_process_is_told_and_its_trial_done(tmp_path: Path) -> None:
    process, journal, _ = two_workers(tmp_path)
    try:
        killed = kill_in_a_trial(lambda: journal_records(journal), lambda pid: pid != process.pid)
        _, stderr = process.communicate(timeout=600)
    finally:
        end([process])
    assert process.returncode == 0, stderr
    assert "A worker failed, the others did its share. worker 2: ended with code -9" in stderr
    each_once(journal_records(journal))
    assert killed.number in [record.number for record in journal_records(journal) if record.state == "lost"]


@pytest.mark.slow
def test_ctrl_c_puts_every_trial_down_and_the_same_command_goes_on(tmp_path: Path) -> None:
    process, journal, _ = two_workers(tmp_path)
    try:
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=600)
    finally:
        end([process])
    assert process.returncode == 130, stderr
    assert f"finished trials are kept in {journal}. Run the same command again to go on" in stderr
    assert "Traceback" not in stderr
    stopped = journal_records(journal)
    assert not [record for record in stopped if record.state in ("running", "lost")]
    assert not journal.with_name("search.journal.workers").exists()  # nobody is left
    resumed = start(write_inputs(tmp_path, epochs=500), tmp_path / "out", *PATIENT, "--json")
    stdout, stderr = resumed.communicate(timeout=600)
    assert resumed.returncode == 0, stderr
    records = journal_records(journal)
    each_once(records)
    assert records[: len(stopped)] == stopped  # what was measured is not measured again
    assert json.loads(stdout)["lost"] == 0


@pytest.mark.slow
def test_no_process_outlives_a_command_that_is_killed(tmp_path: Path) -> None:
    process, journal, second = two_workers(tmp_path)
    end([process])
    held = journal.with_name("search.journal.workers") / second
    for _ in range(6000):
        if not is_held(held):
            break
        time.sleep(0.1)
    assert not is_held(held)
    last = [record for record in journal_records(journal) if record.worker == second][-1]
    assert last.state == "interrupted"


PATIENT = ["--patience", "1000", "--no-prune"]  # every fit takes a second or two


def two_workers(folder: Path) -> tuple[subprocess.Popen[str], Path, str]:
    """A command with two workers, both of which are in a trial, its journal, and the name of its second worker."""
    journal = folder / "out" / "search.journal"
    process = start(write_inputs(folder, epochs=500), folder / "out", *PATIENT, "--workers", 2)
    for _ in range(30_000):
        running = [record for record in journal_records(journal) if record.state == "running" and record.worker]
        if len(running) == 2:
            second = next(record for record in running if process_of(record) != process.pid)
            return process, journal, str(second.worker)
        time.sleep(0.02)
    end([process])
    raise AssertionError("there were never two workers")


def test_a_folder_as_storage_is_refused(tmp_path: Path) -> None:
    with pytest.raises(aggbuffer.AggBufferError, match="is a folder"):
        open_storage(tmp_path, tmp_path, "sweep", 60)
