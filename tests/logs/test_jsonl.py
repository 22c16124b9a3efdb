"""The file of JSON lines: complete, replaced or gone on with, and whole after a kill."""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import aggbuffer
from aggbuffer.fit import EpochRecord, FitResult
from aggbuffer.logs import JsonLines
from helpers_fit import base, buffered, community_graph, refused, targets_of


def fit(path: Path, data: Any = None, task: str = "multiclass", **options: Any) -> FitResult:
    data = community_graph() if data is None else data
    with buffered(base(task=task), data) as model:
        callbacks = [JsonLines(path), *options.pop("also", ())]
        return aggbuffer.fit(model, data, **{"progress": False, "max_epochs": 6, **options}, callbacks=callbacks)


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_is_a_start_its_epochs_and_an_end(tmp_path: Path) -> None:
    path = tmp_path / "new" / "events.jsonl"
    result = fit(path, seed=5)
    start, *epochs, end = events(path)
    assert (start["event"], start["config"], start["epochs_done"]) == ("start", result.config.to_dict(), 0)
    assert start["versions"]["torch"]
    assert [EpochRecord(**{k: e[k] for k in result.history[0].to_dict()}) for e in epochs] == result.history
    assert {key: end[key] for key in ("event", "stopped", "best_epoch")} == {
        "event": "end",
        "stopped": "max_epochs",
        "best_epoch": result.best_epoch,
    }


def test_what_does_not_apply_is_null(tmp_path: Path) -> None:
    data = community_graph()
    data.y = targets_of("regression", data)
    result = fit(tmp_path / "e", data, "regression")
    assert math.isnan(result.history[0].val_accuracy)
    assert events(tmp_path / "e")[1]["val_accuracy"] is None


def test_a_new_run_replaces_the_file_and_one_that_goes_on_appends(tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "e", tmp_path / "c"

    def stop(record: EpochRecord) -> None:
        if record.epoch == 3:
            raise KeyboardInterrupt

    for _ in range(2):
        checkpoint.unlink(missing_ok=True)
        with pytest.raises(KeyboardInterrupt):
            fit(path, checkpoint=checkpoint, also=[stop])
    with path.open("a") as file:
        file.write('{"event": "epo')  # as a full disk would leave it
    fit(path, checkpoint=checkpoint)
    told = [(e["event"], e.get("epoch"), e.get("stopped"), e.get("epochs_done")) for e in events(path)]
    assert told == [
        ("start", None, None, 0),
        *(("epoch", i, None, None) for i in (1, 2, 3)),
        ("end", None, "interrupted", None),
        ("start", None, None, 3),
        *(("epoch", i, None, None) for i in (4, 5, 6)),
        ("end", None, "max_epochs", None),
    ]


def test_nothing_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from helpers_fit import base, community_graph\n"
        "import aggbuffer\n"
        "from aggbuffer.logs import JsonLines\n"
        "model = aggbuffer.attach(base(), community_graph())\n"
        "kill = lambda record: record.epoch == 4 and os.kill(os.getpid(), signal.SIGKILL)\n"
        "from aggbuffer.logs import MLflow, TensorBoard, WandB\n"
        "assert not {'tensorboard', 'mlflow', 'wandb'} & set(sys.modules)\n"  # not before one is used
        "aggbuffer.fit(model, community_graph(), callbacks=[JsonLines(sys.argv[1]), kill])\n"
    )
    path = tmp_path / "e"
    done = subprocess.run([sys.executable, "-c", code, str(path)], cwd=Path(__file__).parents[1], timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert [e["event"] for e in events(path)] == ["start", *["epoch"] * 4]


def test_a_place_that_cannot_be_written_is_refused_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "e", tmp_path):
        with refused(r"(cannot be made|cannot be opened)"):
            fit(path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_costs_the_log_but_not_the_fit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    expected = fit(tmp_path / "e")

    class FillsUp(JsonLines):
        def write(self, record: EpochRecord) -> None:
            if record.epoch == 3:
                self._close()
                self._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
            super().write(record)

    data = community_graph()
    with caplog.at_level(logging.WARNING, "aggbuffer"), buffered(base(), data) as model:
        log = FillsUp(tmp_path / "f")
        result = aggbuffer.fit(model, data, max_epochs=6, progress=False, callbacks=[log])
        log._close()
    assert result.history == expected.history
    assert [r.getMessage() for r in caplog.records] == [
        "FillsUp failed (OSError: [Errno 28] No space left on device) and logs no more; the fit is not affected."
    ]
