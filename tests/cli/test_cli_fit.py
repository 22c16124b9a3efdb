"""``fit``, ``evaluate``, ``diagnose`` and ``inspect`` from end to end."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from cli_inputs import CLASSES, FEATURES, Files, as_npz, as_tables, clustered_graph, trained_state, write_files
from torch_geometric.nn import GCN
from typer.testing import CliRunner

import aggbuffer as ab
from aggbuffer.cli import app
from aggbuffer.config import Block, BufferConfig, FitConfig, Loss, Monitor, SelfLoops, Site
from aggbuffer.text import percent

runner = CliRunner()
SHORT = ["--max-epochs", "20", "--quiet"]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return write_files(tmp_path)


def run(*args: object) -> Any:
    """What a command that must succeed says on standard output."""
    result = runner.invoke(app, [str(arg) for arg in args])
    assert result.exit_code == 0, result.output
    return result.stdout


def fitted(files: Files) -> Path:
    out = files.folder / "x.aggbuffer.safetensors"
    run("fit", *files.inputs, "--out", out, *SHORT)
    return out


def trained() -> GCN:
    gnn = GCN(FEATURES, 8, 2, CLASSES)
    gnn.load_state_dict(trained_state())
    return gnn


@pytest.mark.parametrize("form", ["pt", "npz", "tables"])
def test_every_form_of_the_graph_gives_the_buffer_that_the_library_gives(files: Files, form: str) -> None:
    graph = {"pt": lambda f: files.graph, "npz": as_npz, "tables": as_tables}[form](files.folder)
    out = files.folder / "x.safetensors"
    inputs = ["--graph", graph, "--model", f"{files.model}:build", "--weights", files.weights]
    told = json.loads(run("fit", *inputs, "--out", out, *SHORT, "--json", "--seed", 3))
    expected = ab.attach(trained(), clustered_graph())
    result = ab.fit(expected, clustered_graph(), max_epochs=20, seed=3, progress=False)
    loaded = ab.load(trained(), out)
    assert told["fit"]["best_epoch"] == result.best_epoch
    for ours, theirs in zip(loaded.buffer_parameters(), expected.buffer_parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_graph_follows_the_precision_of_the_model(files: Files) -> None:
    files.model.write_text(files.model.read_text() + "\ndef build_double(data):\n    return build(data).double()\n")
    args = ["--graph", files.graph, "--model", f"{files.model}:build_double", "--weights", files.weights]
    out = files.folder / "x.safetensors"
    run("fit", *args, "--out", out, *SHORT)
    assert json.loads(run("inspect", out, "--json"))["precision"] == "float64"
    run("evaluate", *args, "--buffer", out, "--json")


def test_fit_says_what_it_did_and_writes_a_report(files: Files) -> None:
    out, report = files.folder / "x.safetensors", files.folder / "r.html"
    stdout = run("fit", *files.inputs, "--out", out, "--report", report, *SHORT)
    assert "100 % of edges" in stdout
    assert str(out) in stdout.replace("\n", "")
    assert report.read_text().startswith("<!doctype html>")


def test_fit_has_an_option_for_every_setting_with_its_default(files: Files) -> None:
    help_text = run("fit", "--help")
    for field in (*fields(FitConfig), *fields(BufferConfig)):
        assert f"--{field.name.replace('_', '-')}" in help_text
    for choice in (*get_args(Block), *get_args(Site), *get_args(Loss), *get_args(Monitor), *get_args(SelfLoops)):
        assert re.search(rf"\b{choice}\b", help_text), choice
    told = json.loads(run("fit", *files.inputs, "--out", files.folder / "x.safetensors", *SHORT, "--json"))
    assert told["fit"]["config"] == FitConfig(max_epochs=20, self_loops=told["fit"]["config"]["self_loops"]).to_dict()
    assert told["buffer"]["config"] == BufferConfig().to_dict()


def test_fit_writes_its_record_and_its_events_beside_the_buffer(files: Files) -> None:
    told = json.loads(run("fit", *files.inputs, "--out", files.folder / "x.1.aggbuffer.safetensors", *SHORT, "--json"))
    folder = files.folder / "x.1.run"
    assert json.loads((folder / "run.json").read_text()) == told
    start, *epochs, end = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
    assert start["config"] == told["fit"]["config"]
    assert [{key: e[key] for key in told["fit"]["history"][0]} for e in epochs] == told["fit"]["history"]
    assert (end["stopped"], end["best_epoch"]) == (told["fit"]["stopped"], told["fit"]["best_epoch"])


def test_fit_logs_where_it_is_told_to(files: Files) -> None:
    other, board = files.folder / "a" / "run", files.folder / "board"
    out = files.folder / "x.safetensors"
    stdout = run("fit", *files.inputs, "--out", out, "--run", other, "--log", f"tensorboard={board}", *SHORT)
    assert {path.name for path in other.iterdir()} == {"run.json", "events.jsonl"}
    assert str(other / "run.json") in stdout.replace("\n", "")
    assert len(list(board.glob("events.out.tfevents.*"))) == 1
    assert not out.with_suffix(".run").exists()


def test_fit_goes_on_from_its_checkpoint(files: Files) -> None:
    checkpoint = files.folder / "c.safetensors"
    args = ["fit", *files.inputs, "--out", files.folder / "x.safetensors", "--checkpoint", checkpoint, "--json"]
    first = json.loads(run(*args, *SHORT))
    assert checkpoint.exists()
    again = json.loads(run(*args, *SHORT))
    assert again["fit"]["history"] == first["fit"]["history"]


def test_fit_without_labels_needs_no_evaluation(files: Files) -> None:
    data = clustered_graph()
    torch.save({"x": data.x, "edge_index": data.edge_index}, files.graph)
    report = files.folder / "r.html"
    told = json.loads(
        run("fit", *files.inputs, "--out", files.folder / "x.safetensors", "--report", report, *SHORT, "--json")
    )
    assert told["comparison"] is None
    assert told["fit"]["monitor"] == "rc_loss"
    assert "no labelled test nodes" in report.read_text()


def test_fit_regression_writes_a_report(files: Files) -> None:
    data = clustered_graph()
    data.y = data.x[:, :CLASSES] + 0.1
    torch.save(data, files.graph)
    report = files.folder / "r.html"
    told = json.loads(
        run("fit", *files.inputs, "--out", files.folder / "x.safetensors", "--report", report, *SHORT, "--json")
    )
    assert told["comparison"]["task"] == "regression"
    assert "RMSE" in report.read_text()


def test_json_is_alone_on_standard_output_even_if_the_model_prints(files: Files) -> None:
    out = files.folder / "x.safetensors"
    inputs = ["--graph", files.graph, "--model", f"{files.model}:chatty", "--weights", files.weights]
    json.loads(run("fit", *inputs, "--out", out, "--max-epochs", 3, "--json"))
    json.loads(run("evaluate", *inputs, "--buffer", out, "--json"))
    json.loads(run("diagnose", *inputs, "--json"))


def test_evaluate_agrees_with_the_library(files: Files) -> None:
    expected = ab.evaluate(trained(), clustered_graph()).to_dict()
    assert json.loads(run("evaluate", *files.inputs, "--json")) == {"base": expected}
    out = fitted(files)
    told = json.loads(run("evaluate", *files.inputs, "--buffer", out, "--json"))
    assert told["base"] == expected
    assert told["buffered"] == ab.evaluate(ab.load(trained(), out), clustered_graph()).to_dict()
    assert {row["name"] for row in told["comparison"]["differences"]} >= {"overall", "tail", "50 % of edges"}


def test_evaluate_takes_mask_and_shares(files: Files) -> None:
    told = json.loads(run("evaluate", *files.inputs, "--mask", "val_mask", "--keep", "1,0.3", "--json"))
    assert told["base"]["overall"]["count"] == int(clustered_graph().val_mask.sum())
    assert list(told["base"]["edge_removal"]) == ["1.0", "0.3"]


def test_diagnose_agrees_with_the_library(files: Files) -> None:
    diagnosis = ab.diagnose(trained(), clustered_graph())
    told = json.loads(run("diagnose", *files.inputs, "--json"))
    assert told["verdict"] == diagnosis.verdict
    assert told["flips"] == json.loads(json.dumps(diagnosis.to_dict()["flips"]))
    assert diagnosis.verdict in run("diagnose", *files.inputs)
    assert json.loads(run("diagnose", *files.inputs, "--buffer", fitted(files), "--json"))["buffered"]


def test_inspect_needs_no_base(files: Files) -> None:
    out = fitted(files)
    told = json.loads(run("inspect", out, "--json"))
    assert told["num_features"] == FEATURES
    assert [layer["class"] for layer in told["layers"]] == ["GCNConv", "GCNConv"]
    assert told["fingerprint"] in run("inspect", out).replace("\n", "").replace(" ", "")


@pytest.mark.parametrize("columns", [80, 60, 40])
def test_tables_fit_the_terminal_and_lose_nothing(files: Files, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = fitted(files)
    texts = [
        run("evaluate", *files.inputs),
        run("evaluate", *files.inputs, "--buffer", out),
        run("diagnose", *files.inputs),
        run("inspect", out),
        run("data", "list"),
    ]
    for text in texts:
        assert max(map(len, text.splitlines())) <= columns
        assert "…" not in text
    overall = ab.evaluate(trained(), clustered_graph()).overall
    for number in (percent(overall.accuracy, 2), percent(overall.macro_f1, 2), str(overall.count)):
        assert number in texts[0]  # no cell is broken
    for name in ("heterophilous", "75 % of edges"):
        assert name in texts[0]
        assert name in texts[1]
    assert "114,615,892" in texts[4]


def test_data_list_and_get(files: Files, tmp_path: Path) -> None:
    names = [entry["name"] for entry in json.loads(run("data", "list", "--cache", tmp_path / "none", "--json"))]
    assert {"Cora", "CiteSeer", "PubMed"} <= set(names)
    wrong = runner.invoke(app, ["data", "get", "Nemo"])
    assert wrong.exit_code == 2
    assert "Cora" in wrong.stderr


def test_data_get_saves_a_graph_that_the_other_commands_read(shared: Path, tmp_path: Path) -> None:
    graph = tmp_path / "cora.npz"
    told = json.loads(run("data", "get", "cora", "--root", shared / "data", "--save", graph, "--json"))
    assert told["name"] == "Cora"
    assert ab.data.read_graph(graph).num_nodes == 2_708
