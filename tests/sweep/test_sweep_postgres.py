"""Several workers on a real PostgreSQL server: every point once, none lost, and the password stays a secret."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_server import PASSWORD, QUOTED, Server, running_server
from sweep_cases import POINTS, SHORT, SPACE, each_once, end, kill_in_a_trial, start, write_inputs

import aggbuffer
from aggbuffer.errors import SearchError
from aggbuffer.sweep.postgres import Postgres
from aggbuffer.sweep.records import TrialRecord
from aggbuffer.sweep.space import Space
from aggbuffer.sweep.storage import open_storage
from aggbuffer.sweep.study import SharedStudy
from helpers_fit import base, community_graph, refused


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as running:
        yield running


@pytest.fixture
def address(server: Server) -> str:
    return server.new_database()


def joined(address: str, lost_after: float = 60) -> SharedStudy:
    storage = open_storage(address, Path(), "sweep", lost_after)
    space = Space.of(SPACE)
    return SharedStudy(storage, "sweep", {"format": 1}, space, space.points(None, 0), seed=0, prune_after=None)


def test_workers_that_start_at_once_on_an_empty_database_share_the_points(address: str) -> None:
    ready = threading.Barrier(4)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            ready.wait()
            study = joined(address)
            while (claim := study.claim()) is not None:
                study.report(claim, 10, 1.0)
                study.settle(claim, "complete", 1.0, val_loss=1.0)
                claim.alive.close()
            study.storage.close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    study = joined(address)
    each_once(study.records())
    assert len(study.records()) == POINTS
    study.storage.close()


def test_a_worker_without_a_sign_of_life_is_lost_and_may_not_tell_any_more(address: str) -> None:
    alive, silent = joined(address, lost_after=6), joined(address, lost_after=6)
    lost = silent.claim()
    assert lost is not None
    lost.alive.close()  # as if its machine were gone
    kept = alive.claim()
    assert kept is not None
    again, deadline = None, time.monotonic() + 300
    while again is None or again.point != lost.point:  # the other points first, then nothing until it is given up
        if again is not None:
            alive.settle(again, "complete", 1.0)
            again.alive.close()
        assert time.monotonic() < deadline
        time.sleep(0.1)
        again = alive.claim()
    assert again.settings == lost.settings
    assert silent.settle(lost, "complete", 0.1) is None
    assert alive.settle(again, "complete", 0.7) is not None
    assert alive.settle(kept, "complete", 0.8) is not None  # it showed signs of life all the while
    for claim in (again, kept):
        claim.alive.close()
    each_once(alive.records())
    assert sorted(record.score for record in alive.records() if record.score not in (None, 1.0)) == [0.7, 0.8]
    alive.storage.close()
    silent.storage.close()


def test_a_whole_search_and_a_study_of_something_else(address: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"space": SPACE, "storage": address, **SHORT}
    found = aggbuffer.sweep(base(), community_graph(), tmp_path / "a", trials=3, **options)
    assert found.progress.complete == 3
    assert aggbuffer.sweep(base(), community_graph(), tmp_path / "a", trials=3, **options).trials == found.trials
    with refused("study 'sweep' in .* was made for another base model", SearchError):
        aggbuffer.sweep(base("sage"), community_graph(), tmp_path / "b", **options)
    other = aggbuffer.sweep(base("sage"), community_graph(), tmp_path / "b", name="other", trials=1, **options)
    assert len(other.trials) == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and leaks(path.read_text("latin-1"))]
    assert not leaks(json.dumps(found.to_dict()))
    assert found.storage == f"postgresql+psycopg://searcher@{address.rpartition('@')[2]}"


def test_a_database_that_cannot_be_reached_is_told_without_its_password(server: Server, tmp_path: Path) -> None:
    addresses = {
        "password authentication failed": server.address("postgres").replace(QUOTED, QUOTED + "x"),
        "does not exist": server.address("nowhere"),
        "refused": f"postgresql://searcher:{QUOTED}@127.0.0.1:1/postgres",
        "names no database": f"postgresql://searcher:{QUOTED}@127.0.0.1:1",
        "no valid address": f"postgresql://searcher:{QUOTED}@127.0.0.1:port/postgres",
    }
    for told, address in addresses.items():
        with pytest.raises(aggbuffer.AggBufferError, match=told) as caught:
            Postgres(address.replace("postgresql:", "postgresql+psycopg:"), "sweep", 60)
        assert not leaks(str(caught.value))
        assert "\n" not in str(caught.value)


def test_a_server_that_goes_away_for_a_moment_does_no_harm(server: Server, address: str) -> None:
    study = joined(address)
    claim = study.claim()
    assert claim is not None
    with psycopg.connect(server.address("postgres"), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [address.rpartition("/")[2]]
        )
    record = study.settle(claim, "complete", 0.5)
    claim.alive.close()
    assert record is not None
    assert record.score == 0.5
    study.storage.close()


@pytest.mark.slow
def test_four_commands_at_once_on_an_empty_database_although_one_is_killed(address: str, tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path, epochs=150)
    # Each in a folder of its own, as on machines of their own.
    processes = [
        start(inputs, tmp_path / str(i), "--no-prune", "--lost-after", 15, "--json", AGGBUFFER_STORAGE=address)
        for i in range(4)
    ]
    try:
        watched = open_storage(address, Path(), "sweep", 60)
        killed = kill_in_a_trial(lambda: records_of(watched.optuna))
        told = [process.communicate(timeout=600) for process in processes]
        records = records_of(watched.optuna)
        watched.close()
    finally:
        end(processes)
    assert sorted(process.returncode for process in processes) == [-signal.SIGKILL, 0, 0, 0], told
    each_once(records)
    assert [record.number for record in records if record.state == "lost"] == [killed.number]
    assert len(records) == POINTS + 1
    best = min(record.score for record in records if record.score is not None)
    for i, process in enumerate(processes):
        if process.returncode == 0:
            assert json.loads(told[i][0])["best"]["score"] == best
            assert json.loads((tmp_path / str(i) / "best.json").read_text())["score"] == best
    assert not any(leaks(stdout + stderr) for stdout, stderr in told)


def records_of(storage: Any) -> list[TrialRecord]:
    try:
        trials = storage.get_all_trials(storage.get_study_id_from_name("sweep"))
    except KeyError:
        return []
    return [TrialRecord.of(trial) for trial in trials]


def leaks(text: str) -> bool:
    return PASSWORD in text or QUOTED in text or PASSWORD.encode().decode("latin-1") in text
