"""A fit that wants more memory than there is ends with a sentence; other failures stay what they are."""

from __future__ import annotations

import pytest
import torch

from aggbuffer.errors import ModelError
from aggbuffer.fast.memory import told_when_memory_runs_out


def test_want_of_memory_is_told_with_what_takes_less() -> None:
    with pytest.raises(ModelError, match=r"memory ran out .* fewer seeds"), told_when_memory_runs_out():
        torch.empty(2**55)
    with pytest.raises(ModelError, match="memory ran out"), told_when_memory_runs_out():
        gradients_that_do_not_fit()


def gradients_that_do_not_fit() -> None:
    """As training tells it: a sentence of its own, with the want of memory as its cause."""
    try:
        torch.empty(2**55)
    except RuntimeError as error:
        raise ModelError("The gradients could not be computed.") from error


def test_other_failures_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="something else"), told_when_memory_runs_out():
        raise RuntimeError("something else")
