"""The demonstration, run once: it keeps its promises, and every command it prints works."""

from __future__ import annotations

import json
import runpy
import shlex
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

import aggbuffer as ab
from aggbuffer.cli import app
from aggbuffer.demo import BUFFER, EVENTS, RECORD, REPORT, load_code

runner = CliRunner()


class Demo(NamedTuple):
    folder: Path
    stdout: str
    stderr: str
    record: dict[str, Any]
    seconds: float


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    folder = tmp_path_factory.mktemp("demo") / "out"
    started = time.process_time()  # not wall time, which is also what else the machine does
    result = runner.invoke(app, ["demo", "--out", str(folder)])
    seconds = time.process_time() - started
    assert result.exit_code == 0, result.output
    return Demo(folder, result.stdout, result.stderr, json.loads((folder / RECORD).read_text()), seconds)


def points(demo: Demo, name: str) -> tuple[float, float]:
    """The gain, and the lower end of its interval, in points."""
    row = next(row for row in demo.record["comparison"]["differences"] if row["name"] == name)
    return 100 * row["accuracy"]["difference"], 100 * row["accuracy"]["low"]


def test_it_takes_less_than_a_minute(demo: Demo) -> None:
    assert demo.seconds < 55  # and a few for the imports


def test_the_gain_is_visible_at_all_edges_and_large_without(demo: Demo) -> None:
    gain, low = points(demo, "tail")
    assert gain > 3
    assert low > 0
    for name in ("25 % of edges", "0 % of edges"):
        gain, low = points(demo, name)
        assert gain > 5
        assert low > 2


def test_it_says_what_the_graph_is_and_where_everything_went(demo: Demo) -> None:
    told = " ".join(demo.stderr.split())
    assert ab.data.DEMO_DESCRIPTION in told
    assert "promise nothing for your graph" in told
    assert "epoch 1/" in told
    assert len((demo.folder / EVENTS).read_text().splitlines()) == 2 + len(demo.record["fit"]["history"])
    for name in (BUFFER, REPORT, RECORD):
        assert (demo.folder / name).is_file()
        assert name in demo.stdout


def test_the_code_that_it_prints_loads_the_buffer(demo: Demo, tmp_path: Path) -> None:
    script = tmp_path / "load.py"
    script.write_text(load_code(demo.folder))
    names = runpy.run_path(str(script))
    scores = ab.evaluate(names["model"], names["data"])
    after = demo.record["comparison"]["differences"][0]["after"]["accuracy"]
    assert scores.overall.accuracy == pytest.approx(after)


def test_the_command_that_it_suggests_next_works(demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = demo.stdout[demo.stdout.index("aggbuffer fit") :].replace("\\\n", " ")
    result = runner.invoke(app, [*shlex.split(command)[1:], "--max-epochs", "2", "-q"])
    assert result.exit_code == 0, result.output
    assert Path("my.html").is_file()
