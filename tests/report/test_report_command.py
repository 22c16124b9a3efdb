"""``aggbuffer report``, and ``--edge-loss`` of the commands that measure."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch
from report_runs import Record, fitted, small
from typer.testing import CliRunner

from aggbuffer.cli import app
from aggbuffer.report import render

runner = CliRunner()
OLD = Path(__file__).parents[1] / "data" / "v0.1-run.json"


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return fitted(tmp_path_factory.mktemp("run"), small())


@pytest.fixture
def run(record: Record, tmp_path: Path) -> Path:
    """A folder with a run.json."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(record))
    return folder


def refused(*arguments: object) -> str:
    """The one line of a command that must fail."""
    result = runner.invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code in (1, 2), result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("Error: ")
    return result.stderr


def test_one_run_is_drawn_as_it_was(run: Path, record: Record, tmp_path: Path) -> None:
    for named in (run, run / "run.json"):
        out = tmp_path / "page.html"
        result = runner.invoke(app, ["report", str(named), "--out", str(out)])
        assert result.exit_code == 0, result.output
        assert out.read_text() == render(record)
        assert str(out) in result.stdout


def test_a_machine_is_told_what_was_written(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    result = runner.invoke(app, ["report", str(run), "--out", str(out), "--json"])
    assert json.loads(result.stdout) == {"report": str(out), "runs": [str(run)], "bytes": out.stat().st_size}


def test_several_runs_are_shown_side_by_side(run: Path, record: Record, tmp_path: Path) -> None:
    other, out = tmp_path / "other.json", tmp_path / "page.html"
    nothing = {"missing": "No labels."}
    unlabelled = {"comparison": None, "bins": nothing, "flips": nothing, "unlabelled": "No labels."}
    other.write_text(json.dumps({**record, **unlabelled, "title": "<i>Another</i>", "edge_loss": 0.25}))
    result = runner.invoke(app, ["report", str(run), str(other), str(OLD), "--out", str(out)])
    assert result.exit_code == 0, result.output
    page = out.read_text()
    assert "3 runs side by side" in page
    assert "&lt;i&gt;Another&lt;/i&gt;" in page
    assert "<i>" not in page
    assert "An old run" in page
    assert page.count('<tr><th scope="row"><span class="swatch') == 2  # the third has no curve


def test_a_record_of_the_first_version_still_makes_a_page(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    result = runner.invoke(app, ["report", str(OLD), "--out", str(out)])
    assert result.exit_code == 0, result.output
    page = out.read_text()
    told = json.loads(OLD.read_text())["comparison"]["differences"]
    assert f"{100 * told[0]['after']['accuracy']:.1f} %" in page
    assert "older version of aggbuffer" in page


def test_what_is_no_record_is_refused_in_a_sentence(run: Path, record: Record, tmp_path: Path) -> None:
    file = tmp_path / "some.json"
    out = tmp_path / "page.html"
    text = json.dumps(record)
    for content in (
        "",
        text[: len(text) // 2],
        "[1, 2]",
        '{"format": "other"}',
        "\udcff".encode("utf-8", "surrogateescape"),
    ):
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        told = refused("report", file, "--out", out)
        assert "some.json" in told
        assert "expected a run.json that aggbuffer wrote" in told
    assert "does not exist" in refused("report", tmp_path / "nothing.json", "--out", out)
    assert "holds no run.json" in refused("report", tmp_path, "--out", out)
    file.write_text(json.dumps({**record, "format": "aggbuffer-run-9"}))
    assert "this version does not know" in refused("report", file, "--out", out)
    for named in (run, run / "run.json"):
        assert "named twice" in refused("report", named, "--out", run / "run.json")
    assert json.loads((run / "run.json").read_text()) == record
    assert not out.exists()


@pytest.mark.parametrize(
    "part", ["comparison", "fit", "bins", "flips", "terms", "graph", "buffer", "title", "edge_loss"]
)
def test_a_damaged_record_is_refused_in_a_sentence(record: Record, part: str, tmp_path: Path) -> None:
    file, out = tmp_path / "some.json", tmp_path / "page.html"
    damaged = copy.deepcopy(record)
    damaged[part] = {"nonsense": 1} if isinstance(damaged[part], dict) else [None]
    file.write_text(json.dumps(damaged))
    assert "damaged" in refused("report", file, "--out", out)
    assert "damaged" in refused("report", file, OLD, "--out", out)
    del damaged[part]
    file.write_text(json.dumps(damaged))
    assert repr(part) in refused("report", file, "--out", out)
    assert not out.exists()


def test_a_record_with_a_hole_is_refused_in_a_sentence(record: Record, tmp_path: Path) -> None:
    file, out = tmp_path / "some.json", tmp_path / "page.html"
    damaged = copy.deepcopy(record)
    del damaged["buffer"]["bytes"]
    file.write_text(json.dumps(damaged))
    assert "some.json is damaged" in refused("report", file, "--out", out)
    assert "damaged" in refused("report", file, OLD, "--out", out)


def test_help_has_an_example() -> None:
    result = runner.invoke(app, ["report", "--help"])
    assert result.exit_code == 0
    assert "Example: aggbuffer report" in result.stdout


@pytest.mark.parametrize("loss", ["1.5", "-0.1", "half"])
def test_an_impossible_edge_loss_is_wrong_usage(loss: str, tmp_path: Path) -> None:
    told = refused("demo", "--out", tmp_path / "out", "--edge-loss", loss)
    assert "--edge-loss" in told
    assert not (tmp_path / "out").exists()


def test_fit_evaluates_the_edge_loss_and_tells_it(tmp_path: Path) -> None:
    torch.save(small(), tmp_path / "graph.pt")
    model = tmp_path / "model.py"
    model.write_text("from torch_geometric.nn import GCN\n\n\ndef build():\n    return GCN(4, 8, 2, 3)\n")
    report = tmp_path / "report.html"
    command = [
        "fit",
        "--graph",
        tmp_path / "graph.pt",
        "--model",
        f"{model}:build",
        "--out",
        tmp_path / "x.safetensors",
    ]
    command += ["--report", report, "--edge-loss", "0.37", "--max-epochs", "3", "--quiet"]
    result = runner.invoke(app, [str(part) for part in command])
    assert result.exit_code == 0, result.output
    assert "63 % of edges" in result.stdout
    assert "90 % of edges" not in result.stdout  # that is for the curve alone
    assert "With 37 % of the edges gone" in " ".join(report.read_text().split())
