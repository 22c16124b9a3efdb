"""``aggbuffer sweep``: what it says, writes and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sweep_cases import POINTS, Inputs, write_inputs
from typer.testing import CliRunner

from aggbuffer.cli import app
from aggbuffer.sweep.storage import told_place

runner = CliRunner()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return write_inputs(tmp_path_factory.mktemp("inputs"), epochs=12)


def run(inputs: Inputs, out: Path, *options: object, code: int = 0) -> Any:
    result = runner.invoke(app, ["sweep", *inputs.options, "--out", str(out), *map(str, options)])
    assert result.exit_code == code, result.output
    return result


def test_it_tells_the_trials_then_the_best_and_writes_everything(inputs: Inputs, tmp_path: Path) -> None:
    out, report = tmp_path / "out", tmp_path / "page.html"
    result = run(inputs, out, "--report", report)
    lines = result.stderr.splitlines()
    assert len([line for line in lines if line.startswith("trial ")]) == POINTS
    assert lines[-1].startswith(f"{POINTS} of {POINTS} done")
    assert f"{POINTS} points" in result.stdout
    written = {path.name for path in out.iterdir() if not path.name.endswith("lock")}
    assert written == {
        "best.aggbuffer.safetensors",
        "best.json",
        "search.journal",
        "sweep.html",
        "trials.csv",
        "trials.json",
    }
    assert report.read_text() == (out / "sweep.html").read_text()
    again = run(inputs, out, "--quiet", "--json")
    assert again.stderr == ""
    told = json.loads(again.stdout)
    assert told["best"]["score"] == json.loads((out / "best.json").read_text())["score"]
    assert told["complete"] + told["pruned"] == POINTS


def test_help_has_an_example_and_imports_neither_torch_nor_optuna() -> None:
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from aggbuffer.cli import app\n"
        "result = CliRunner().invoke(app, ['sweep', '--help'])\n"
        "assert 'Example: aggbuffer sweep' in result.stdout, result.output\n"
        "assert not {'torch', 'optuna', 'numpy', 'aggbuffer.sweep'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("options", "told", "code"),
    [
        (["--storage", "sqlite:///x.db"], "SQLite cannot be shared", 2),
        (["--storage", "redis://me:pw@h"], "a redis:// address", 2),
        (["--trials", "0"], "--trials", 2),
        (["--workers", "0"], "--workers", 2),
        (["--monitor", "rc_loss"], "rc_loss", 2),
        (["--space", "none.json"], "cannot be read", 2),
        (["--name", ""], "name of the study", 2),
        (["--model", "nowhere.py:build"], "There is no file nowhere.py", 1),
    ],
)
def test_wrong_usage_is_one_line(inputs: Inputs, tmp_path: Path, options: list[str], told: str, code: int) -> None:
    result = run(inputs, tmp_path / "out", *options, code=code)
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("Error: ")
    assert told in lines[0]
    assert "pw" not in lines[0]


def test_another_base_in_the_same_folder_is_refused(inputs: Inputs, tmp_path: Path) -> None:
    run(inputs, tmp_path, "--trials", 1, "--quiet")
    options = list(inputs.options)
    at = options.index("--model") + 1
    options[at] = options[at].replace(":build", ":other")
    del options[options.index("--weights") : options.index("--weights") + 2]
    result = runner.invoke(app, ["sweep", *options, "--out", str(tmp_path), "--quiet"])
    assert result.exit_code == 1
    assert "another" in result.stderr


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("postgresql://me:pw@h:1/d", "postgresql://me@h:1/d"),
        ("postgresql://me:p:w@h/d?password=pw", "postgresql://me@h/d"),
        ("postgresql://me:p@w@h/d", "postgresql://me@h/d"),
        ("postgresql://me:p?w@h/d", "postgresql://…"),
        ("postgresql:///d?host=/run", "postgresql:///d"),
        ("a/b.journal", "a/b.journal"),
        (None, "out/search.journal"),
    ],
)
def test_where_the_trials_are_is_told_without_a_password(address: str | None, told: str) -> None:
    assert told_place(address, Path("out")) == told


def test_missing_extras_are_told_in_one_sentence(
    inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "aggbuffer.sweep.postgres", raising=False)
    with monkeypatch.context() as lacking:
        lacking.setitem(sys.modules, "psycopg", None)
        result = run(inputs, tmp_path, "--storage", "postgresql://h/d", code=1)
        assert "pip install 'aggbuffer[sweep,postgres]'" in result.stderr
        lacking.setitem(sys.modules, "optuna", None)
        result = run(inputs, tmp_path, code=1)
        assert "pip install 'aggbuffer[sweep]'" in result.stderr
