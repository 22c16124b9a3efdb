"""Units are measured once, whoever else is at it and however often the runner is killed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from paper import runner
from paper.definitions import TABLES
from paper.durations import Durations, told
from paper.store import Store, as_text
from paper.units import Unit, settings_of

ROOT = Path(__file__).parents[1]


def measure(unit: Unit, root: Path | None) -> dict[str, Any]:
    """Stands for a training: a moment, a trace of having been done, and a failure on split 3."""
    if root is not None:
        (root / f"{unit.dataset}-{unit.split}-{time.monotonic_ns()}").touch()
    time.sleep(0.05)
    if unit.split == 3:
        raise RuntimeError("out of luck")
    return {"validation": 0.5, "seconds": 2.0}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results", tmp_path / "claims")


def some_units(count: int) -> list[Unit]:
    return [Unit.of("Cora", "GCN", split) for split in range(count)]


def test_a_failure_is_told_and_the_others_go_on(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    summary = runner.run(some_units(5), measure, store=store, tell=lines.append)
    assert (summary.done, summary.failed) == (4, 1)
    assert "out of luck" in capsys.readouterr().err
    assert "5 of 5 units" in lines[0]
    assert any(line.startswith("[5/5] Cora GCN split 4: 50.00 %") for line in lines)


def test_what_is_there_is_not_done_again(store: Store) -> None:
    before = store.path(some_units(1)[0])
    runner.run(some_units(2), measure, store=store, tell=lambda _: None)
    written = before.stat().st_mtime_ns
    summary = runner.run(some_units(3), measure, store=store, tell=lambda _: None)
    assert summary.done == 1
    assert before.stat().st_mtime_ns == written


def test_a_claimed_unit_is_left_to_its_holder(store: Store) -> None:
    first, second = some_units(2)
    with store.claim(first) as mine:
        assert mine
        assert store.is_claimed(first)
        summary = runner.run([first, second], measure, store=store, tell=lambda _: None)
    assert (summary.done, summary.held) == (1, 1)
    assert not store.is_claimed(first)
    assert runner.run([first], measure, store=store, tell=lambda _: None).done == 1
    assert list(store.claims.iterdir()) == []


def test_two_runners_share(store: Store, tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    units = [Unit.of(dataset, "GCN", split) for dataset in ("Cora", "CiteSeer") for split in range(3)]

    def go() -> None:
        runner.run(units, measure, store=store, root=traces, tell=lambda _: None)

    runners = [threading.Thread(target=go) for _ in range(2)]
    for one in runners:
        one.start()
    for one in runners:
        one.join()
    assert all(store.has(unit) for unit in units)
    assert len(list(traces.iterdir())) == len(units)


def test_processes_share_and_failures_come_back(store: Store, tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    summary = runner.run(some_units(6), measure, store=store, root=traces, jobs=2, tell=lambda _: None)
    assert (summary.done, summary.failed) == (5, 1)
    assert len(list(traces.iterdir())) == 6


def test_a_killed_runner_loses_only_what_it_was_at(store: Store, tmp_path: Path) -> None:
    code = (
        "import time; from pathlib import Path; from paper import runner; from paper.store import Store\n"
        "from paper.units import Unit\n"
        "def slow(unit, root):\n"
        "    if unit.split == 1: print('busy', flush=True); time.sleep(60)\n"
        "    return {'validation': 0.5, 'seconds': 1.0}\n"
        f"store = Store(Path({str(store.results)!r}), Path({str(store.claims)!r}))\n"
        "runner.run([Unit.of('Cora', 'GCN', s) for s in range(3)], slow, store=store, tell=lambda _: None)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "busy\n"
    first, second, third = some_units(3)
    assert store.is_claimed(second)
    process.kill()
    process.wait()
    process.stdout.close()
    assert [store.has(unit) for unit in (first, second, third)] == [True, False, False]
    assert not store.is_claimed(second)
    assert runner.run([first, second, third], measure, store=store, tell=lambda _: None).done == 2


def test_threads_use_every_core_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert [runner.threads_for(jobs) for jobs in (1, 2, 3, 20)] == [8, 4, 2, 1]


def test_time_left_comes_from_the_past(store: Store) -> None:
    done, same, other, strange = (
        Unit.of("Cora", "GCN", 0),
        Unit.of("Cora", "GCN", 1),
        Unit.of("Cora", "GCN", 0, {"layers": 4}),
        Unit.of("PubMed", "GCN", 0),
    )
    store.write(done, {"seconds": 10.0, "evaluation_seconds": 2.0})
    past = Durations(store)
    assert past.expected(same) == 12.0
    past.add(same, 14.0)
    assert past.expected(other) == 13.0
    assert past.total([same, other, strange]) == (26.0, 1)
    assert [told(s) for s in (5, 61, 3700)] == ["5 s", "1 min", "1 h 02 min"]


def test_changes_that_change_nothing_are_none() -> None:
    assert Unit.of("PubMed", "GCN", 0, {"layers": 2, "hidden": 512, "buffer.dropout": 0.0}).changes == ()
    assert Unit.of("PubMed", "GCN", 0, {"layers": 8, "activation": "relu"}).name == "GCN@layers=8"
    settings = settings_of("Cora", {"layers": 4, "buffer.drop_edge": 0.7, "drop": 0.3})
    assert (settings.base.layers, settings.base.hidden) == (4, 512)
    assert (settings.buffer.drop_edge, settings.buffer.strength) == (0.7, 0.5)
    assert settings.params == {"drop": 0.3}


def test_tables_share_the_files_of_what_they_share(store: Store) -> None:
    def paths(name: str) -> set[Path]:
        return {store.path(unit) for unit in TABLES[name].units(["PubMed"])}

    assert paths("main") == paths("disparity")
    assert paths("removal") < paths("main")
    assert len(paths("hyperparameters") & paths("main")) == 2 * 3
    assert len(list(TABLES["hyperparameters"].units(["PubMed"]))) == (24 - 4) * 3
    graph_patcher = [u for u in TABLES["main"].units(["PubMed", "Cora"]) if u.method == "GraphPatcher"]
    assert len(graph_patcher) == 3 + 10


def test_json_has_a_line_an_entry() -> None:
    value = {"split": 0, "test": {"overall": {"count": 3}, "edge_removal": {"1.0": {"count": 3}, "0.0": {"count": 3}}}}
    text = as_text(value)
    assert json.loads(text) == value
    assert '\n   "1.0": {"count": 3},\n' in text
