"""Ctrl-C, as a signal to this very process."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

import aggbuffer
from aggbuffer.cli.interrupts import BetweenEpochs
from aggbuffer.fit import EpochRecord, FitResult
from helpers_fit import base, buffered, community_graph


class Press:
    """A callback that presses Ctrl-C in an epoch, or as the run ends."""

    def __init__(self, epoch: int = 0, times: int = 1) -> None:
        self.epoch, self.times = epoch, times

    def __call__(self, record: EpochRecord) -> None:
        if record.epoch == self.epoch:
            self._press()

    def on_end(self, result: FitResult) -> None:
        if not self.epoch:
            self._press()

    def _press(self) -> None:
        for _ in range(self.times):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("press", "epochs"),
    [(Press(3), 3), (Press(3, times=2), 2), (Press(), 6)],
    ids=["once: after the epoch", "twice: at once", "as the run ends"],
)
def test_ctrl_c_is_never_lost_and_the_handler_is_put_back(press: Press, epochs: int, tmp_path: Any) -> None:
    before, stop, heard = signal.getsignal(signal.SIGINT), BetweenEpochs(), []
    data, options = community_graph(), {"progress": False, "max_epochs": 6, "checkpoint": tmp_path / "c"}
    with buffered(base(), data) as model:
        with pytest.raises(KeyboardInterrupt):
            aggbuffer.fit(model, data, callbacks=[press, heard.append, stop], **options)
        assert stop.epoch == epochs
        assert signal.getsignal(signal.SIGINT) is before
        rest: list[EpochRecord] = []
        result = aggbuffer.fit(model, data, callbacks=[rest.append], **options)
    if press.times == 1:  # no epoch is run again
        assert [*heard, *rest] == result.history
