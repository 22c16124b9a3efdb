"""The commands of the reproduction, on a graph that takes no time."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aggbuffer.data import demo_graph
from paper import __main__ as cli
from paper import picks, runs, store
from paper.definitions import TABLES
from paper.settings import BASE
from paper.units import Unit

RUN = CliRunner()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results of its own, the demonstration graph in Cora's place, and trainings of three epochs."""
    usual = store.Store(tmp_path / "results", tmp_path / "claims")
    monkeypatch.setattr(cli, "Store", lambda: usual)
    monkeypatch.setattr(picks, "CONFIGS", tmp_path / "configs")
    monkeypatch.setattr(runs, "BASES", tmp_path / "bases")
    monkeypatch.setattr(runs, "load", lambda name, root, split: demo_graph(split))
    monkeypatch.setitem(BASE, "Cora", dataclasses.replace(BASE["Cora"], hidden=8, max_epochs=3))
    return tmp_path


def call(*words: str, code: int = 0) -> str:
    done = RUN.invoke(cli.app, list(words))
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.filterwarnings("ignore")
def test_run_table_status(folder: Path) -> None:
    told = call("run", "main", "--datasets", "Cora", "--methods", "GCN", "--splits", "2")
    assert "2 of 2 units to do" in told
    assert "2 measured" in told
    result = json.loads((folder / "results/main/Cora/GCN/0.json").read_text())
    assert {"dataset", "method", "split", "seed", "test", "validation", "settings", "training", "environment"} <= set(
        result
    )
    assert {"seconds", "peak_memory_mib"} <= set(result)
    assert set(result["test"]["edge_removal"]) == {"1.0", "0.75", "0.5", "0.25", "0.0"}
    assert result["settings"]["base"]["hidden"] == 8
    assert "(2)" in call("table", "main")
    assert json.loads(call("table", "main", "--format", "json"))["values"]["overall"]["GCN"]["Cora"]["splits"] == 2
    assert r"\toprule" in call("table", "main", "--format", "latex")
    assert "0 measured" in call("run", "removal", "--datasets", "Cora", "--methods", "GCN", "--splits", "2")
    row = next(line for line in call("status").splitlines() if line.startswith("| removal"))
    assert [cell.strip() for cell in row.split("|")][2] == "2"


@pytest.mark.filterwarnings("ignore")
def test_a_search_then_its_choice_then_the_run(folder: Path) -> None:
    assert "search --datasets Cora" in plain(
        call("run", "main", "--datasets", "Cora", "--methods", "DropEdge", "--splits", "1", code=2)
    )
    call("run", "search", "--datasets", "Cora", "--methods", "DropEdge")
    files = sorted((folder / "results/search/Cora").rglob("*.json"))
    assert len(files) == 10
    assert "test" not in json.loads(files[0].read_text())
    assert "DropEdge: {'drop':" in call("search-pick", "--datasets", "Cora")
    call("run", "main", "--datasets", "Cora", "--methods", "DropEdge", "--splits", "1")
    result = json.loads((folder / "results/main/Cora/DropEdge/0.json").read_text())
    assert result["picked"] == result["settings"]["params"] == picks.read("Cora")["DropEdge"]["changes"]
    assert "DropEdge †" in call("table", "main")


@pytest.mark.filterwarnings("ignore")
def test_a_failure_is_an_exit_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str, root: Path | None, split: int) -> Any:
        raise OSError("the disk is gone")

    monkeypatch.setattr(runs, "load", broken)
    told = call("run", "main", "--datasets", "Cora", "--methods", "GCN", "--splits", "1", code=1)
    assert "1 failed" in told
    assert not list((folder / "results").rglob("*.json"))


def test_names_that_are_not_there(folder: Path) -> None:
    assert "no table 'mian'" in plain(call("run", "mian", code=2))
    assert "no method 'GNC'" in plain(call("run", "main", "--datasets", "Cora", "--methods", "GNC", code=2))
    assert "no 'Kora'" in plain(call("run", "main", "--datasets", "Kora", code=2))
    assert "no format 'xml'" in plain(call("table", "main", "--format", "xml", code=2))
    assert "no figure 'pie'" in plain(call("figure", "pie", code=2))


def test_every_table_is_listed_and_every_unit_has_a_home() -> None:
    told = call("list")
    for table in TABLES.values():
        assert f"| {table.name} " in told
        for unit in table.units(table.datasets[:2], splits=1):
            assert store.Store().path(unit).parts[-4] in TABLES
    assert store.Store().path(Unit.of("Cora", "DropEdge", 0, {"drop": 0.3}, search=True)).parts[-4:] == (
        "search",
        "Cora",
        "DropEdge@drop=0.3",
        "0.json",
    )


def plain(text: str) -> str:
    """An error without the box that is drawn around it."""
    return " ".join(text.replace("│", " ").split())
