"""TensorBoard, MLflow and W&B: the real packages write to a local folder, and what they wrote is read back."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import aggbuffer
from aggbuffer import logs
from aggbuffer.fit import EpochRecord, FitResult
from helpers_fit import base, buffered, community_graph, refused

NAMES = {
    "loss/bias": "bias",
    "loss/robustness": "robust",
    "loss/total": "loss",
    "validation/loss": "val_loss",
    "validation/accuracy": "val_accuracy",
    "validation/score": "score",
}


@pytest.fixture(autouse=True)
def nobody_calls_out(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every request that leaves this machine, from this process or a child, would come by this proxy; none may."""
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        yield
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):
            proxy.accept()


def fit(*callbacks: Any, **options: Any) -> FitResult:
    data = community_graph()
    with buffered(base(), data) as model:
        return aggbuffer.fit(
            model, data, **{"progress": False, "max_epochs": 5, "seed": 7, **options}, callbacks=callbacks
        )


def curves(result: FitResult) -> dict[str, list[tuple[int, float]]]:
    return {name: [(r.epoch, getattr(r, key)) for r in result.history] for name, key in NAMES.items()}


def test_tensorboard_reads_back_every_number(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = fit(logs.TensorBoard(tmp_path / "tb"))
    found = EventAccumulator(str(tmp_path / "tb")).Reload()
    assert set(found.Tags()["scalars"]) == set(NAMES)
    for name, expected in curves(result).items():
        told = found.Scalars(name)
        assert [event.step for event in told] == [epoch for epoch, _ in expected]
        assert [event.value for event in told] == pytest.approx([value for _, value in expected])
    text = found.Tensors("settings/text_summary")[0].tensor_proto.string_val[0].decode()
    assert json.loads(text.removeprefix("```json\n").removesuffix("\n```"))["config"]["seed"] == 7


def test_tensorboard_shows_each_epoch_of_a_resumed_run_once(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def stop(record: EpochRecord) -> None:
        if record.epoch == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(logs.TensorBoard(tmp_path / "tb"), stop, checkpoint=tmp_path / "c")
    result = fit(logs.TensorBoard(tmp_path / "tb"), checkpoint=tmp_path / "c")
    found = EventAccumulator(str(tmp_path / "tb")).Reload()
    assert [event.step for event in found.Scalars("loss/bias")] == [record.epoch for record in result.history]


@pytest.mark.slow  # MLflow takes its time to be imported and to set up a database
def test_mlflow_reads_back_every_number(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def stop(record: EpochRecord) -> None:
        if record.epoch == 2:
            raise KeyboardInterrupt

    result = fit(logs.MLflow(tmp_path / "ml", name="first"))
    with pytest.raises(KeyboardInterrupt):
        fit(logs.MLflow(tmp_path / "ml"), stop)
    assert capfd.readouterr() == ("", "")  # the terminal is not MLflow's to write to
    import mlflow

    mlflow_client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'ml' / 'mlflow.db'}")
    experiment = mlflow_client.get_experiment_by_name("aggbuffer")
    second, first = mlflow_client.search_runs([experiment.experiment_id])
    assert (first.info.run_name, first.info.status, second.info.status) == ("first", "FINISHED", "KILLED")
    assert first.data.params["config.seed"] == "7"
    assert first.data.tags["best_epoch"] == str(result.best_epoch)
    for name, expected in curves(result).items():
        told = mlflow_client.get_metric_history(first.info.run_id, name)
        assert [(metric.step, metric.value) for metric in told] == expected
    assert mlflow.active_run() is None


def test_wandb_writes_offline_and_every_number_is_in_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)  # offline is what it is without being told
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    result = fit(logs.WandB(tmp_path / "wb", name="first"))
    (path,) = (tmp_path / "wb" / "wandb").glob("offline-run-*/*.wandb")
    until = time.monotonic() + 60
    while not (found := wandb_records(path)) or found[-1].WhichOneof("record_type") != "exit":
        assert time.monotonic() < until  # W&B's own process writes the file, and may do so a moment later
        time.sleep(0.05)
    (run,) = (record.run for record in found if record.WhichOneof("record_type") == "run")
    assert (run.project, run.display_name) == ("aggbuffer", "first")
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert config["config"]["seed"] == 7
    history = [as_dict(record.history.item) for record in found if record.WhichOneof("record_type") == "history"]
    for name, expected in curves(result).items():
        assert [(row["_step"], row[name]) for row in history] == expected
    summary: dict[str, Any] = {}
    for record in found:
        if record.WhichOneof("record_type") == "summary":
            summary |= as_dict(record.summary.update)
    assert summary["best_epoch"] == result.best_epoch


def as_dict(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def wandb_records(path: Path) -> list[Any]:
    """Every record of a ``.wandb`` file: a header of 7 bytes, then LevelDB's log format of blocks of 32 KiB."""
    from wandb.proto import wandb_internal_pb2

    content, at, part, found = path.read_bytes(), 7, b"", []
    while at + 7 <= len(content):
        left = 32_768 - at % 32_768
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack("<IHB", content[at : at + 7])
        if at + 7 + size > len(content):  # still being written
            break
        part += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last piece
            found.append(wandb_internal_pb2.Record.FromString(part))
            part = b""
    return found


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("TensorBoard", "tensorboard", "tensorboard"), ("MLflow", "mlflow", "mlflow"), ("WandB", "wandb", "wandb")],
)
def test_a_missing_package_is_told_with_its_extra(
    name: str, package: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = __import__("importlib.util").util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda wanted, *rest: None if wanted == package else found(wanted))
    with refused(rf"needs {package}, which is not installed; run pip install 'aggbuffer\[{extra}\]'"):
        getattr(logs, name)(tmp_path)


def test_there_is_no_other() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Comet'"):
        logs.Comet  # noqa: B018
