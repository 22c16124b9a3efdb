"""Folders of files that stores are built from. Shared by the tests of stores.

Run as a script it is a build that can be killed: ``python store_inputs.py SOURCE OUT`` builds in processes of its own,
kills each with SIGKILL at a random moment, and lets one come through in the end.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow
from pyarrow import parquet

Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class Inputs:
    """A random graph as it is on disk and as it should come out.

    Attributes:
        folder: With the files.
        source: ``[E]`` in the order of the file.
        target: Likewise.
        weight: Likewise, or None.
        x: ``[N, F]``.
        y: ``[N]``.
        masks: ``[N, 3]``.
    """

    folder: Path
    source: Numbers
    target: Numbers
    weight: Numbers | None
    x: Numbers
    y: Numbers
    masks: Numbers

    @property
    def order(self) -> Numbers:
        """Of the edges in a store."""
        return np.lexsort((self.source, self.target))


def write_inputs(
    folder: Path,
    *,
    nodes: int = 500,
    edges: int = 4000,
    kind: str = "parquet",
    weighted: bool = False,
    undirected: bool = True,
    loops: bool = True,
    hub: bool = False,
    width: int = 7,
    seed: int = 0,
) -> Inputs:
    """Write a random graph without duplicates, its edges in no order."""
    draw = np.random.default_rng(seed)
    source, target = draw.integers(nodes, size=(2, edges))
    if hub:  # half of all edges lead to one node
        target[: edges // 2] = nodes // 3
    if not loops:
        source, target = source[source != target], target[source != target]
    if undirected:
        source, target = np.concatenate([source, target]), np.concatenate([target, source])
    keys = draw.permutation(np.unique(source * nodes + target))
    source, target = keys // nodes, keys % nodes
    weight = draw.random(len(keys), dtype=np.float32) if weighted else None
    y, part = draw.integers(3, size=nodes), draw.integers(3, size=nodes)
    x = (np.eye(3, width)[y] + draw.standard_normal((nodes, width), np.float32)).astype(np.float32)
    inputs = Inputs(folder, source, target, weight, x, y, part[:, None] == np.arange(3))
    folder.mkdir(exist_ok=True)
    np.save(folder / "features.npy", x)
    np.save(folder / "labels.npy", y)
    np.save(folder / "masks.npy", inputs.masks)
    columns = {"source": source, "target": target} | ({} if weight is None else {"weight": weight})
    if kind == "csv":
        write_csv(folder / "edges.csv", columns)
    else:
        parquet.write_table(pyarrow.table(columns), folder / "edges.parquet", row_group_size=max(1000, len(keys) // 5))
    return inputs


def write_csv(path: Path, columns: dict[str, Any]) -> None:
    """A table as text."""
    rows = zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True)
    lines = [",".join(columns), *(",".join(map(repr, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


def _killed_again_and_again(source: Path, out: Path) -> None:
    from aggbuffer import store
    from aggbuffer.store import buckets, nodes
    from aggbuffer.store.growing import GrowingArray
    from aggbuffer.store.journal import Journal

    buckets._BATCHES_BETWEEN_NOTES = nodes._BLOCKS_BETWEEN_NOTES = 1
    chance, stages = random.Random(7), set()
    journal = out.with_name(f"{out.name}.building") / "journal.json"
    for kills in range(17):
        last = chance.randint(3, 70) if kills < 16 else 10**9
        child = os.fork()  # one thread only: torch is told so by OMP_NUM_THREADS
        if child == 0:
            events = itertools.count(1)

            def deadly(act: Callable[..., None], events: Iterator[int] = events, last: int = last) -> Any:
                def wrapped(*args: Any, **kwargs: Any) -> None:
                    for part in (lambda: None, lambda: act(*args, **kwargs)):
                        part()
                        if next(events) >= last:
                            os.kill(os.getpid(), signal.SIGKILL)

                return wrapped

            GrowingArray.append = deadly(GrowingArray.append)  # type: ignore[method-assign]
            Journal.note = deadly(Journal.note)  # type: ignore[method-assign]
            buckets.write_safetensors = deadly(buckets.write_safetensors)  # type: ignore[attr-defined]
            store.build(source, out, memory="1MiB")
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != -signal.SIGKILL:
            print(kills, *sorted(stages))
            sys.exit(code)
        if journal.exists():
            stages |= set(json.loads(journal.read_text())["stages"])


if __name__ == "__main__":
    _killed_again_and_again(Path(sys.argv[1]), Path(sys.argv[2]))
