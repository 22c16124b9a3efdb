"""Several processes, on one machine or many, over ``torch.distributed`` and gloo.

Only sums travel: the gradients of the buffers and what is logged, as float64, in one message a step. Every process
holds the same parameters and the same state of the optimiser, so that none of them is special but for rank 0, which
prints and writes.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from traceback import clear_frames
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from aggbuffer.config import check_number
from aggbuffer.errors import AggBufferError, ConfigError, RanksError
from aggbuffer.scale.ranks import Alone, Ranks

TIMEOUT = 600.0  # seconds until a process that does not answer counts as gone

_SEEN_WITHIN = 5.0  # seconds in which the survivors of a failure report
_HERE = "is here"
_NO_BYTES = torch.empty(0, dtype=torch.uint8)
_NEEDED = ("MASTER_ADDR", "MASTER_PORT")


class ProcessRanks:
    """The processes of a ``torch.distributed`` group, seen from one of them."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self._group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def share(self, seeds: Tensor) -> Tensor:
        """This process's part of ``seeds`` ``[n]``: one stretch of them."""
        return seeds.tensor_split(self.size)[self.rank]

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor, in place, by its sum over all processes, computed in float64."""
        flat = torch.cat([tensor.detach().reshape(-1).to("cpu", torch.float64) for tensor in tensors])
        with self._told():
            dist.all_reduce(flat, group=self._group)
        with torch.no_grad():
            for tensor, total in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
                tensor.copy_(total.view(tensor.shape))

    def gather_rows(self, rows: Tensor) -> Tensor:
        """The rows of all processes in the order of their ranks, to each of them."""
        here = torch.tensor([rows.size(0)])
        counts = [torch.empty_like(here) for _ in range(self.size)]
        with self._told():
            dist.all_gather(counts, here, group=self._group)
            parts = [rows.new_empty(int(count), *rows.shape[1:]) for count in counts]
            parts[self.rank].copy_(rows)
            for rank, part in enumerate(parts):  # of different lengths, which gathering at once does not allow
                dist.broadcast(part, group=self._group, group_src=rank)
        return torch.cat(parts)

    def barrier(self) -> None:
        """Wait until every process is here."""
        with self._told():
            dist.barrier(group=self._group)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """A failure inside becomes the sentence that says which processes have gone."""
        try:
            yield
        except RuntimeError as error:
            clear_frames(error.__traceback__)  # they hold the group, whose connections would stay open
            raise _explained(str(error)) from error


@contextmanager
def of_rank_0(path: Path, ranks: Ranks) -> Iterator[Path]:
    """Where each process finds what rank 0 has at ``path``, on whatever machine it is; nothing, where that has none."""
    content = path.read_bytes() if ranks.rank == 0 and path.is_file() else b""
    sent = ranks.gather_rows(torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else _NO_BYTES)
    if ranks.rank == 0:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="aggbuffer-") as folder:
        copy = Path(folder) / path.name
        if sent.numel():
            copy.write_bytes(sent.numpy().tobytes())
        yield copy


@contextmanager
def telling_how_to_go_on(checkpoint: Path | None) -> Iterator[None]:
    """A failure between processes inside also says what to do."""
    try:
        yield
    except RanksError as error:
        hint = (
            "With a checkpoint (--checkpoint PATH) a run can go on."
            if checkpoint is None
            else f"Run the same again, with any number of processes: it goes on from {checkpoint}."
        )
        raise RanksError(f"{error} {hint}", error.speaker) from error


def current_ranks() -> Ranks | None:
    """The processes of ``torch.distributed``, where it was initialised."""
    return ProcessRanks() if dist.is_available() and dist.is_initialized() else None


def launched() -> bool:
    """Whether ``torchrun``, or a launcher like it, has started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


@contextmanager
def joined(timeout: float = TIMEOUT) -> Iterator[Ranks]:
    """Join the processes that a launcher has started, and leave them at the end; alone, do nothing.

    Args:
        timeout: Seconds until a process that does not answer counts as gone.

    Example:
        >>> with aggbuffer.scale.distributed.joined():
        ...     aggbuffer.fit(model, store, batch=aggbuffer.BatchConfig(seeds=4096))
    """
    check_number("timeout", timeout, 0, float("inf"), open_left=True)
    if not launched() or dist.is_initialized():
        yield current_ranks() or Alone()
        return
    if missing := [name for name in _NEEDED if name not in os.environ]:
        raise ConfigError(f"RANK and WORLD_SIZE are set, but {missing[0]} is not; start the processes with torchrun.")
    try:
        dist.init_process_group("gloo", timeout=timedelta(seconds=timeout))
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise RanksError(
            f"The processes of this run could not meet at {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']} "
            f"({reason}); start as many as torchrun was told, where they reach each other."
        ) from error
    try:
        with _stopped_by_the_launcher():
            yield ProcessRanks()
    except RanksError:
        raise
    except BaseException as error:
        _report(_words_of(error))
        raise
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


@contextmanager
def _stopped_by_the_launcher() -> Iterator[None]:
    """What the launcher sends to the others when one process has ended becomes a sentence too."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread can be told
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if dist.is_initialized():  # else the failure is being told already
            raise _explained("the launcher has stopped the run")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _explained(reason: str) -> RanksError:
    """The sentence for a failure between processes.

    Every survivor says that it is there, and who fails says why; after a moment, who has said nothing is gone.
    """
    rank, size, store = dist.get_rank(), dist.get_world_size(), _store()
    dist.destroy_process_group()  # closes the connections, so that no other waits for this one any longer
    try:
        last_words = _last_words(rank, size, store)
    except RuntimeError:  # who keeps the words is rank 0, unless the launcher does
        return RanksError(f"Rank 0 of {size} has gone: killed, out of memory, or its machine lost.", speaker=1)
    gone = [other for other, words in enumerate(last_words) if words is None]
    speaker = next(other for other, words in enumerate(last_words) if words == _HERE)
    if gone:
        names = " and ".join(map(str, gone))
        have = "have" if len(gone) > 1 else "has"
        return RanksError(f"Rank {names} of {size} {have} gone: killed, out of memory, or cut off.", speaker)
    for other, words in enumerate(last_words):
        if words != _HERE:  # rank 0 has told the user itself
            return RanksError(f"Rank {other} of {size} {words}", speaker if other else 0)
    reason = reason.splitlines()[0].rstrip(".")[:100]
    return RanksError(f"The {size} processes of this run have lost each other ({reason}).", speaker)


def _last_words(rank: int, size: int, store: Any) -> list[str | None]:
    """What each process has said; None for nothing."""
    store.set(_key(rank), _HERE)
    words: list[str | None] = [None] * size
    until = time.monotonic() + _SEEN_WITHIN
    while None in words and time.monotonic() < until:
        for other in range(size):
            if words[other] is None and store.check([_key(other)]):
                words[other] = store.get(_key(other)).decode()
        time.sleep(0.05)
    return words


def _words_of(error: BaseException) -> str:
    if isinstance(error, AggBufferError):
        return f"has failed: {error}"
    if isinstance(error, KeyboardInterrupt):
        return "was interrupted."
    reason = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
    return f"has failed with an internal error ({reason})."


def _report(words: str) -> None:
    """Tell the other processes what has become of this one."""
    with suppress(RuntimeError):
        _store().set(_key(dist.get_rank()), words)


def _store() -> Any:
    """What the processes met by, and can leave each other words in."""
    return dist.distributed_c10d._get_default_store()


def _key(rank: int) -> str:
    return f"aggbuffer/last-words/{rank}"
