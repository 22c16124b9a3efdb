"""Fits in several processes, for the tests: ``python ranks_run.py RUNS`` with JSON, a list of runs.

Each run has ``size`` processes, which meet as those of a launcher do, and writes what every process came to into its
``out``: ``RANK.safetensors`` with the buffers' parameters, ``RANK.json`` with the history, or ``RANK.txt`` with an
error. ``kill`` is a rank and the epoch after which it ends itself with SIGKILL; ``fail`` likewise, with an error of its
own. The rest are keywords of ``fit``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).parents[1]))

import aggbuffer
from aggbuffer.errors import GraphError, RanksError
from aggbuffer.result import EpochRecord
from aggbuffer.scale.distributed import joined
from helpers_fit import base, community_graph, weights


def process(out: Path, settings: dict[str, Any]) -> None:
    """One of the processes."""
    kill, fail = settings.pop("kill", None), settings.pop("fail", None)
    data = community_graph(nodes=settings.pop("nodes", 90))
    batch = settings.pop("batch", None)
    model = aggbuffer.attach(base(settings.pop("kind", "gcn")), data)
    try:
        with joined(timeout=60) as ranks:

            def after(record: EpochRecord) -> None:
                if kill == [ranks.rank, record.epoch]:
                    os.kill(os.getpid(), signal.SIGKILL)
                if fail == [ranks.rank, record.epoch]:
                    raise GraphError("Something is wrong with this graph.")

            result = aggbuffer.fit(
                model, data, batch=batch, progress=False, callbacks=[after], checkpoint_every=0, **settings
            )
            parameters = {str(i): value for i, value in enumerate(weights(model))}
            save_file(parameters, out / f"{ranks.rank}.safetensors")
            (out / f"{ranks.rank}.json").write_text(json.dumps(result.to_dict()))
    except RanksError as error:
        (out / f"{os.environ['RANK']}.txt").write_text(f"{error.speaker}: {error}")
        os._exit(1)
    except GraphError:
        os._exit(2)
    os._exit(0)


def run(out: str, size: int, copy: list[str] | None = None, **settings: Any) -> None:
    """All processes of a run, and how each ended, in ``codes.json`` with the seconds from the first end to the last."""
    folder = Path(out)
    folder.mkdir()
    if copy is not None:
        shutil.copy(*copy)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = {}
    for rank in range(size):
        child = os.fork()  # one thread only: torch is told so by OMP_NUM_THREADS
        if child == 0:
            names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
            os.environ |= dict(zip(names, map(str, (rank, size, "127.0.0.1", port)), strict=True))
            process(folder, settings)
        children[child] = rank
    codes, ends = {}, []
    for _ in range(size):
        child, status = os.wait()
        codes[children[child]] = os.waitstatus_to_exitcode(status)
        ends.append(time.monotonic())
    (folder / "codes.json").write_text(json.dumps([[codes[rank] for rank in range(size)], ends[-1] - ends[0]]))


if __name__ == "__main__":
    for settings in json.loads(sys.argv[1]):
        run(**settings)
