"""Time several contenders on one case in turn: each a process, all loaded and warm, one at work at a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from benchmarks.peers.protocol import CaseFile

ROOT = Path(__file__).parents[1]
REST = (
    0.01  # seconds between two turns: OpenMP's threads spin for a moment after their work, and would disturb the next
)

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Contender:
    """Who takes part.

    Attributes:
        name: In results.
        module: ``benchmarks.peers.<module>``.
        task: What it is to do.
        python: The interpreter; None if there is none.
        why_not: Why there is none.
    """

    name: str
    module: str
    task: str
    python: Path | None
    why_not: str = ""


@dataclass
class Outcome:
    """What became of a contender.

    Attributes:
        seconds: Of every timed step.
        notes: Its last line: memory, versions, and something of its results.
        why: Why it has no numbers; empty if it has.
    """

    seconds: list[float] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    why: str = ""


def measure(
    case: CaseFile, contenders: Sequence[Contender], steps: int, *, burst: int = 1, tell: Tell = lambda _: None
) -> dict[str, Outcome]:
    """Steps of all contenders in turn.

    Args:
        case: What all of them work on.
        contenders: In this order.
        steps: How many timed steps each makes.
        burst: How many of them in one turn.
        tell: Called with what is going on.
    """
    outcomes = {contender.name: Outcome(why=contender.why_not) for contender in contenders}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        case.write(folder / "case.npz")
        peers: list[_Peer] = []
        for contender in contenders:
            if contender.python is not None:
                tell(f"{case.settings.graph}: {contender.name} gets ready")
                peer = _Peer(contender, contender.python, outcomes[contender.name], folder, case.settings.threads)
                peers.append(stack.enter_context(peer))
                peer.wait_until_ready()  # one after the other, so that nobody warms up against somebody else
        names = ", ".join(peer.name for peer in peers if peer.is_alive)
        tell(f"{case.settings.graph}: {steps} steps of {names or 'nobody'} in turn")
        for done in range(0, steps, burst):
            for peer in peers:
                peer.steps(min(burst, steps - done))
        for peer in peers:
            peer.stop()
    return outcomes


class _DeadPeerError(Exception):
    """A contender ended before it was asked to; the message says why in a sentence."""


class _Peer:
    """A contender's process. When it dies its outcome says why, and from then on it is asked for nothing."""

    def __init__(self, contender: Contender, python: Path, outcome: Outcome, folder: Path, threads: int) -> None:
        self.name, self.outcome = contender.name, outcome
        self._errors = (folder / f"{contender.name}.err").open("w+")
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        # DGL has an OpenMP of its own, which only this variable reaches.
        own = {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": os.pathsep.join(paths), "DGLBACKEND": "pytorch"}
        self._process = subprocess.Popen(
            [str(python), "-m", f"benchmarks.peers.{contender.module}", str(folder / "case.npz"), contender.task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            env=os.environ | own,
        )

    def __enter__(self) -> _Peer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            with suppress(BrokenPipeError):
                cast(IO[str], pipe).close()
        self._process.wait()

    @property
    def is_alive(self) -> bool:
        return not self.outcome.why

    def wait_until_ready(self) -> None:
        """Until it has loaded the case and made its first steps."""
        with self._epitaph_if_it_dies():
            self._answer()

    def steps(self, count: int) -> None:
        """Ask for some steps in a row."""
        if self.is_alive:
            with self._epitaph_if_it_dies():
                for _ in range(count):
                    self.outcome.seconds.append(self._ask("step")["seconds"])
                time.sleep(REST)

    def stop(self) -> None:
        """Ask for its last words."""
        if self.is_alive:
            with self._epitaph_if_it_dies():
                self.outcome.notes.update(self._ask("stop"))

    def _ask(self, request: str) -> dict[str, Any]:
        requests = cast(IO[str], self._process.stdin)
        try:
            requests.write(request + "\n")
            requests.flush()
        except BrokenPipeError:
            raise _DeadPeerError from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        line = cast(IO[str], self._process.stdout).readline()
        if not line:
            raise _DeadPeerError
        answer: dict[str, Any] = json.loads(line)
        return answer

    @contextmanager
    def _epitaph_if_it_dies(self) -> Iterator[None]:
        try:
            yield
        except _DeadPeerError:
            self.outcome.why = self._epitaph()
            self.outcome.seconds.clear()

    def _epitaph(self) -> str:
        code = self._process.wait()
        if code == -signal.SIGKILL:
            return "was killed, as the system does to who wants more memory than there is"
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return f"ended with code {code}: {lines[-1] if lines else 'it said nothing'}"
