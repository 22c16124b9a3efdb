"""``fit`` on mini-batches and ``evaluate`` in bounded memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_inputs import Files, write_files
from typer.testing import CliRunner

from aggbuffer.cli import app
from aggbuffer.errors import ConfigError
from aggbuffer.text import bytes_of
from helpers_fit import refused

runner = CliRunner()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return write_files(tmp_path)


def invoked(*args: object) -> Any:
    return runner.invoke(app, [str(arg) for arg in args])


def test_fit_on_mini_batches(files: Files) -> None:
    out = files.folder / "x.safetensors"
    common = ["fit", *files.inputs, "--out", out, "--max-epochs", 3, "--json", "--quiet"]
    for given, batch in [
        (["--batch-size", 20, "--fanout", 3], {"seeds": 20, "fanout": 3, "clusters": None}),
        ([], None),
    ]:
        result = invoked(*common, *given)
        assert result.exit_code == 0, result.output
        told = json.loads(result.stdout)["fit"]["config"]["batch"]
        assert told == batch if batch is None else batch.items() <= told.items()
    result = invoked(*common, "--clusters", 4, "--fanout", 3)
    assert result.exit_code == 2
    assert "clusters takes all edges" in result.stderr
    assert "Traceback" not in result.stderr


def test_evaluate_in_bounded_memory(files: Files) -> None:
    common = ["evaluate", *files.inputs, "--json"]
    whole, layered = invoked(*common), invoked(*common, "--memory", "100kB")
    assert whole.exit_code == layered.exit_code == 0, layered.output
    assert json.loads(layered.stdout) == json.loads(whole.stdout)
    result = invoked(*common, "--memory", "plenty")
    assert result.exit_code == 2
    assert "'plenty' is no amount of memory" in result.stderr


def test_amounts_of_memory() -> None:
    amounts = {"4GiB": 4 * 2**30, "500 MB": 500_000_000, "1000": 1000, "1.5k": 1500, "2mib": 2**21, "7b": 7}
    assert {text: bytes_of(text) for text in amounts} == amounts
    for text in ("", "GiB", "-1", "0", "4 XB", "1e9"):
        with refused("is no amount of memory", ConfigError):
            bytes_of(text)
