"""What callbacks hear of a run, whatever becomes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import aggbuffer
from aggbuffer import BufferedGNN
from aggbuffer.callbacks import RunInfo
from aggbuffer.fit import EpochRecord, FitResult
from helpers_fit import FEATURES, NODES, base, buffered, community_graph, same, weights


class Listener:
    """Writes down what it hears, and fails in the epoch it is told to."""

    def __init__(self, model: BufferedGNN, fatal: int = 0, error: type[BaseException] = RuntimeError) -> None:
        self.model, self.fatal, self.error = model, fatal, error
        self.heard: list[Any] = []

    def on_start(self, info: RunInfo) -> None:
        self.heard.append(info)

    def __call__(self, record: EpochRecord) -> None:
        self.heard.append(record)
        if record.epoch == self.fatal:
            raise self.error("here")

    def on_end(self, result: FitResult) -> None:
        self.heard.append(result)
        self.at_end = weights(self.model)


def fit(model: BufferedGNN, **options: Any) -> FitResult:
    return aggbuffer.fit(model, community_graph(), **{"progress": False, "max_epochs": 6, "lr": 0.03, **options})


def test_a_run_is_told_from_start_to_end() -> None:
    data = community_graph()
    with buffered(base(), data) as model:
        listener = Listener(model)
        result = fit(model, callbacks=[listener], seed=3)
        info, *records, end = listener.heard
        assert records == result.history
        assert end == result
        assert same(listener.at_end, weights(model))
        assert info.config == result.config
        assert info.epochs_done == 0
        assert (info.nodes, info.edges, info.features) == (NODES, data.num_edges, FEATURES)
        assert (info.base, info.parameters) == ("GCN", model.num_buffer_parameters)
    told = json.loads(json.dumps(info.to_dict(), allow_nan=False))
    assert told["config"]["seed"] == 3
    assert told["versions"]["aggbuffer"] == aggbuffer.__version__


@pytest.mark.parametrize(("error", "stopped"), [(KeyboardInterrupt, "interrupted"), (RuntimeError, "error")])
def test_the_end_is_heard_with_the_best_state_whatever_went_wrong(error: type[BaseException], stopped: str) -> None:
    with buffered(base(), community_graph()) as model:
        fit(model, max_epochs=4)
        expected = weights(model)
    with buffered(base(), community_graph()) as model:
        other, listener = Listener(model), Listener(model, 4, error)
        with pytest.raises(error, match="here"):
            fit(model, callbacks=[other, listener])
        for each in (other, listener):
            assert each.heard[-1].stopped == stopped
            assert each.heard[-1].epochs == 4
            assert same(each.at_end, expected)


def test_one_that_fails_at_the_start_or_the_end_keeps_no_other_from_its_end() -> None:
    class Fails(Listener):
        def on_start(self, info: RunInfo) -> None:
            if self.fatal:
                raise RuntimeError("here")

        def on_end(self, result: FitResult) -> None:
            raise RuntimeError("here")

    for fatal in (0, 1):
        with buffered(base(), community_graph()) as model:
            listener = Listener(model)
            with pytest.raises(RuntimeError, match="here"):
                fit(model, callbacks=[listener, Fails(model, fatal)])
            assert listener.heard[-1].epochs == (0 if fatal else 6)


def test_a_run_that_goes_on_says_what_was_done_before(tmp_path: Path) -> None:
    with buffered(base(), community_graph()) as model:
        first, second = Listener(model, 4, KeyboardInterrupt), Listener(model)
        with pytest.raises(KeyboardInterrupt):
            fit(model, callbacks=[first], checkpoint=tmp_path / "c")
        result = fit(model, callbacks=[second], checkpoint=tmp_path / "c")
    # The checkpoint was written as the callback failed, although ten seconds had not passed: no epoch is run again.
    assert second.heard[0].history == result.history[:4]
    assert second.heard[1:-1] == result.history[4:]
    assert "history" not in second.heard[0].to_dict()


def test_a_result_is_short_to_look_at() -> None:
    with buffered(base(), community_graph()) as model:
        result = fit(model)
        nothing = fit(model, max_epochs=0)
    assert "EpochRecord" not in repr(result)
    best = result.history[result.best_epoch - 1]
    for told in (str(result), result._repr_html_()):
        assert f"epoch {result.best_epoch} was best on val_loss" in told
        assert f"{best.robust:.4f}" in told
    assert "the untouched base was best" in str(nothing)
