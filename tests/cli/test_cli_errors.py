"""Failures: one clear line on standard error, the right exit code, nothing written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from cli_inputs import Files, clustered_graph, trained_state, write_files
from typer.testing import CliRunner

from aggbuffer.cli import app

runner = CliRunner()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return write_files(tmp_path)


def fails(*args: object, code: int = 1) -> str:
    """The one line that a failing command says."""
    result = runner.invoke(app, [str(arg) for arg in args])
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("Error: ")
    return lines[0]


def fit_args(files: Files, **changes: object) -> list[str]:
    options = {
        "graph": files.graph,
        "model": f"{files.model}:build",
        "weights": files.weights,
        "out": files.folder / "x.safetensors",
    }
    return ["fit", *(part for name, value in (options | changes).items() for part in (f"--{name}", str(value)))]


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("{file}:missing", "has no 'missing'"),
        ("{file}:broken", "no such checkpoint"),
        ("{file}:nothing", "returned a int"),
        ("{file}:answer", "is a int"),
        ("nowhere.py:build", "There is no file nowhere.py"),
        ("no.such.module:build", "No module named 'no'"),
    ],
)
def test_bad_models_are_explained(files: Files, model: str, told: str) -> None:
    assert told in fails(*fit_args(files, model=model.format(file=files.model)), "-q")


def test_errors_inside_the_users_file_are_told(files: Files) -> None:
    files.model.write_text("import nothing_of_that_name\n")
    assert "nothing_of_that_name" in fails(*fit_args(files), "-q")
    files.model.write_text("def build(:\n")
    assert "SyntaxError" in fails(*fit_args(files), "-q")
    files.model.write_text("raise SystemExit(0)\n")
    assert "SystemExit" in fails(*fit_args(files), "-q")


def test_factories_with_and_without_the_graph_and_ready_models_work(files: Files) -> None:
    files.model.write_text(files.model.read_text() + "\nready = build_without_graph()\n")
    for name in ("build", "build_without_graph", "ready"):
        args = ["evaluate", "--graph", files.graph, "--model", f"{files.model}:{name}", "--weights", files.weights]
        assert runner.invoke(app, [str(arg) for arg in args]).exit_code == 0


@pytest.mark.parametrize(
    "options",
    [["--drop-edge", "1.5"], ["--monitor", "luck"], ["--model", "no-colon"], ["--patience", "0"], ["--block", "x"]],
)
def test_settings_out_of_range_are_wrong_usage(files: Files, options: list[str]) -> None:
    fails(*fit_args(files), *options, code=2)
    assert not (files.folder / "x.safetensors").exists()


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["fit"], "Missing option '--graph'"),
        (["nonsense"], "No such command 'nonsense'"),
        (["evaluate", "--graph"], "'--graph'"),
        (["fit", "--nonsense"], "--nonsense"),
        (["fit", "--lr", "fast"], "'--lr'"),
        (["data", "get"], "data get --help"),
        (["data", "nonsense"], "No such command 'nonsense'"),
    ],
)
def test_wrong_usage_is_told_in_one_line(args: list[str], told: str) -> None:
    assert told in fails(*args, code=2)


def test_weights_that_do_not_fit_are_named(files: Files) -> None:
    told = fails(*fit_args(files, model=f"{files.model}:build_other"), "-q")
    assert "convs.0.bias [8] instead of [16]" in told
    state = trained_state()
    state["convs.0.extra"] = state.pop("convs.0.bias")
    torch.save(state, files.folder / "renamed.pt")
    told = fails(*fit_args(files, weights=files.folder / "renamed.pt"), "-q")
    assert "it lacks convs.0.bias" in told
    assert "the model has no convs.0.extra" in told


def test_weights_may_be_a_plain_or_a_nested_state_dict(files: Files) -> None:
    for number, content in enumerate([trained_state(), {"epoch": 3, "state_dict": trained_state()}]):
        path = files.folder / f"{number}.pt"
        torch.save(content, path)
        args = ["evaluate", "--graph", files.graph, "--model", f"{files.model}:build", "--weights", path]
        assert runner.invoke(app, [str(arg) for arg in args]).exit_code == 0


class Trap:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path("trapped"),)  # type: ignore[return-value]


def test_weights_are_never_unpickled(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files.folder)
    torch.save({"convs.0.bias": Trap()}, files.folder / "trap.pt")
    assert "unpickling" in fails(*fit_args(files, weights=files.folder / "trap.pt"), "-q")
    assert not Path("trapped").exists()


def test_damaged_weights_are_explained(files: Files) -> None:
    files.weights.write_bytes(files.weights.read_bytes()[:100])
    assert "cut short" in fails(*fit_args(files), "-q")
    (files.folder / "w.pt").write_bytes(b"nonsense")
    assert "damaged" in fails(*fit_args(files, weights=files.folder / "w.pt"), "-q")


def test_unwritable_outputs_are_found_before_the_work_starts(files: Files) -> None:
    # The graph does not exist either: that the output is named shows that it was looked at first.
    for out in (files.folder / "no" / "x.safetensors", files.folder, files.graph / "x.safetensors"):
        assert str(out) in fails(*fit_args(files, graph="nowhere.pt", out=out), "-q")
    for option in ("report", "checkpoint"):
        path = files.folder / "no" / "x"
        assert str(path) in fails(*fit_args(files, graph="nowhere.pt", **{option: path}), "-q")


def test_inputs_are_not_overwritten(files: Files) -> None:
    before = files.graph.read_bytes()
    assert "named twice" in fails(*fit_args(files, out=files.graph), "-q", code=2)
    assert files.graph.read_bytes() == before


def test_a_run_does_not_overwrite_its_own_record(files: Files) -> None:
    run = files.folder / "kept.run"
    run.mkdir()
    for name in ("run.json", "events.jsonl"):
        for option in ("out", "report"):
            assert "named twice" in fails(*fit_args(files, run=run, **{option: run / name}), "-q", code=2)
    assert list(run.iterdir()) == []


def test_places_for_logs_are_looked_at_before_the_work_starts(files: Files) -> None:
    nowhere = {"graph": "nowhere.pt"}
    for spec in ("nonsense", "comet=x", "wandb=", "tensorboard"):
        assert f"--log is {spec!r}" in fails(*fit_args(files, **nowhere, log=spec), "-q", code=2)
    inside = files.graph / "x"
    assert str(inside) in fails(*fit_args(files, **nowhere, run=inside), "-q")
    assert str(inside) in fails(*fit_args(files, **nowhere, log=f"tensorboard={inside}"), "-q")
    assert "named twice" in fails(*fit_args(files, **nowhere, run=files.folder / "x.safetensors"), "-q", code=2)
    assert not (files.folder / "x.run").exists()


def test_graphs_that_cannot_be_used_are_explained(files: Files) -> None:
    assert "nowhere.pt" in fails(*fit_args(files, graph="nowhere.pt"), "-q")
    data = clustered_graph()
    data.x[0, 0] = np.nan
    torch.save(data, files.graph)
    assert "NaN" in fails(*fit_args(files), "-q")


def test_foreign_buffer_files_are_explained(files: Files) -> None:
    assert "safetensors" in fails("inspect", files.graph)
    assert "There is no file" in fails("inspect", files.folder / "none")
    assert "aggbuffer.save" in fails("evaluate", *files.inputs, "--buffer", files.weights)


def test_debug_adds_the_traceback(files: Files) -> None:
    args = [*fit_args(files, model=f"{files.model}:broken"), "-q", "--debug"]
    result = runner.invoke(app, args)
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert "in broken" in result.stderr


def test_unexpected_errors_are_one_line_too(files: Files) -> None:
    # Its state_dict fails where nothing in the library expects it.
    files.model.write_text(
        "import torch\n\n\nclass Odd(torch.nn.Module):\n    def state_dict(self):\n        raise OSError('odd')\n\n\n"
        "build = Odd\n"
    )
    told = fails(*fit_args(files), "-q")
    assert "internal error (OSError: odd)" in told
    assert "--debug" in told
