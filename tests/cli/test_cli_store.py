"""Stores on the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from typer.testing import CliRunner

from aggbuffer.cli import app

sys.path.insert(0, str(Path(__file__).parents[1] / "store"))
from store_inputs import write_inputs


def run(*args: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["store", *map(str, args)])
    return result.exit_code, result.stdout, result.stderr


def test_build_check_and_info_tell_the_same(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path / "raw", kind="csv")
    code, built, _ = run("build", inputs.folder, "--out", tmp_path / "s", "--memory", "4MiB", "--json")
    assert code == 0
    told = json.loads(built)
    assert told["nodes"] == 500
    assert told["edges"] == len(inputs.source)
    assert told["undirected"] is True
    for command in ("check", "info"):
        code, again, _ = run(command, tmp_path / "s", "--json")
        assert code == 0
        assert json.loads(again) == told
    code, shown, _ = run("info", tmp_path / "s")
    assert code == 0
    assert f"{len(inputs.source):,}" in shown


def test_failures_have_a_line_and_a_code(tmp_path: Path) -> None:
    code, _, told = run("build", tmp_path / "nowhere", "--out", tmp_path / "s")
    assert code == 1
    assert told.startswith("Error: There is no folder")
    code, _, told = run("build", tmp_path, "--out", tmp_path / "s", "--memory", "much")
    assert code == 2
    assert "'much' is no amount of memory" in told
    code, _, told = run("check", tmp_path)
    assert code == 1
    assert "is no graph store" in told
