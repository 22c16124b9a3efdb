"""Sort edges that do not fit into memory by their target: count, spread over files of neighbouring targets, sort each.

The edges are read twice. The first reading counts how many lead to which nodes, so that every file of the second fits
into memory whatever the degrees are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import safe_open

from aggbuffer.errors import ConfigError, GraphError
from aggbuffer.files import write_safetensors
from aggbuffer.store.edges import Batch, EdgeFile, Position
from aggbuffer.store.growing import GrowingArray
from aggbuffer.store.journal import Journal
from aggbuffer.store.layout import COLUMN, DEGREE, POINTER, WEIGHT
from aggbuffer.store.part import KEY, Numbers, Part, record_type
from aggbuffer.store.sizes import as_text

COUNT, SPREAD, SORT = "count", "spread", "sort"
_MOST_BINS = 2**20
_BATCHES_BETWEEN_NOTES = 32
# Bytes of memory for every edge or node at hand, with all that is made of it on the way.
_PER_READ_EDGE, _PER_SORTED_EDGE, _PER_WEIGHED_EDGE, _PER_NODE = 128, 48, 96, 64


@dataclass(frozen=True)
class Sorted:
    """What came of sorting.

    Attributes:
        edges: How many there are, each once.
        self_loops: How many of them lead from a node to itself.
        duplicates: How many were listed again.
        undirected: Whether every edge but self-loops has its reverse.
    """

    edges: int
    self_loops: int
    duplicates: int
    undirected: bool


@dataclass(frozen=True)
class Sorter:
    """An external sort.

    Attributes:
        folder: Of the unfinished store.
        edges: The file to read.
        num_nodes: N; every end of an edge must be below.
        memory: Bytes to do with.
        journal: Of what is done.
    """

    folder: Path
    edges: EdgeFile
    num_nodes: int
    memory: int
    journal: Journal

    @property
    def rows(self) -> int:
        """How many edges are read at once."""
        return max(1024, min(2**20, self.memory // _PER_READ_EDGE))

    def run(self) -> Sorted:
        """Write pointer, column, degree and weights of the store."""
        histogram = self.count()
        ends = self.bucket_ends(histogram)
        self.spread(ends)
        return self.sort(ends)

    # First reading.

    def count(self) -> Numbers:
        """How many edges lead to each bin of neighbouring nodes, ``[bins]`` int64."""
        path = self.folder / "histogram.safetensors"
        histogram, start = np.zeros(-(-self.num_nodes // self.bin), np.int64), Position()
        if path.exists():
            with safe_open(path, framework="np") as file:
                histogram = file.get_tensor("histogram")
                start = Position(*map(int, file.metadata()["position"].split()))
        if self.journal.is_done(COUNT):
            return histogram

        def note(position: Position) -> None:
            kept = {"histogram": torch.from_numpy(histogram)}
            write_safetensors(kept, path, {"position": f"{position.row} {position.byte}"})

        for number, batch in enumerate(self.edges.batches(self.rows, start), start=1):
            self._check(batch)
            histogram += np.bincount(batch.target // self.bin, minlength=len(histogram))
            if number % _BATCHES_BETWEEN_NOTES == 0:
                note(batch.after)
            start = batch.after
        note(start)
        self.journal.note(COUNT, done=True, rows=start.row)
        return histogram

    @property
    def bin(self) -> int:
        """How many neighbouring nodes are counted together."""
        return -(-self.num_nodes // _MOST_BINS)

    def _check(self, batch: Batch) -> None:
        for name, nodes in (("source", batch.source), ("target", batch.target)):
            outside = (nodes < 0) | (nodes >= self.num_nodes)
            if outside.any():
                at = int(outside.argmax())
                row = batch.after.row - len(nodes) + at + 1
                raise GraphError(
                    f"Row {row:,} of {self.edges.path.name} names the node {nodes[at]} as a {name}, but features.npy "
                    f"has {self.num_nodes:,} rows; expected 0 to {self.num_nodes - 1}."
                )
        if batch.weight is not None and not np.isfinite(batch.weight).all():
            at = int((~np.isfinite(batch.weight)).argmax())
            row = batch.after.row - len(batch.weight) + at + 1
            raise GraphError(
                f"Row {row:,} of {self.edges.path.name} has a weight that is NaN or infinite; replace it or drop the "
                "edge."
            )

    # Which nodes share a file.

    def bucket_ends(self, histogram: Numbers) -> list[int]:
        """Where the nodes of each bucket end, so that each can be sorted in memory.

        Raises:
            ConfigError: If a single bin has too many edges for the memory.
        """
        noted = self.journal.state(SPREAD)
        if noted is not None:
            return list(noted["ends"])
        per_edge = _PER_WEIGHED_EDGE if self.edges.has_weight else _PER_SORTED_EDGE
        most_edges = self.memory // per_edge
        # One 64-bit number tells target (counted from the bucket's first) and source of an edge.
        most_nodes = min(self.memory // _PER_NODE, 2**63 // self.num_nodes - 1)
        ends, edges, begin = [], 0, 0
        for number, count in enumerate(histogram.tolist()):
            first, last = number * self.bin, min((number + 1) * self.bin, self.num_nodes)
            if count > most_edges:
                which = f"The node {first} has" if last - first == 1 else f"The nodes {first} to {last - 1} have"
                raise ConfigError(
                    f"{which} {count:,} incoming edges, which take {as_text(count * per_edge)} to sort; give memory at "
                    f"least that (got {as_text(self.memory)}) and run the same command again."
                )
            if first > begin and (edges + count > most_edges or last - begin > most_nodes):
                ends.append(first)
                edges, begin = 0, first
            edges += count
        return [*ends, self.num_nodes]

    # Second reading.

    def spread(self, ends: list[int]) -> None:
        """Write every edge to the file of its bucket."""
        noted = self.journal.state(SPREAD) or {"position": Position().to_dict(), "sizes": [0] * len(ends)}
        if noted.get("done"):
            return
        sizes = list(noted["sizes"])
        for bucket, size in enumerate(sizes):
            with self._scratch(bucket).open("ab") as file:
                file.truncate(size)
        starts = np.array([0, *ends[:-1]], np.int64)
        position = Position(**noted["position"])

        def note(**more: Any) -> None:
            for bucket in range(len(ends)):
                with self._scratch(bucket).open("rb") as file:
                    os.fsync(file.fileno())
            self.journal.note(SPREAD, ends=ends, position=position.to_dict(), sizes=sizes, **more)

        note()
        for number, batch in enumerate(self.edges.batches(self.rows, position), start=1):
            for bucket, records in self._parted(batch, starts):
                with self._scratch(bucket).open("ab") as file:
                    sizes[bucket] += file.write(records.data.cast("B"))
            position = batch.after
            if number % _BATCHES_BETWEEN_NOTES == 0:
                note()
        note(done=True)

    def _parted(self, batch: Batch, starts: Numbers) -> Iterator[tuple[int, Numbers]]:
        """The edges of each bucket in the order they came, as records."""
        bucket = np.searchsorted(starts, batch.target, side="right") - 1
        order = np.argsort(bucket, kind="stable")
        records = np.empty(len(order), record_type(self.edges.has_weight))
        records[KEY] = ((batch.target - starts[bucket]) * self.num_nodes + batch.source)[order]
        if batch.weight is not None:
            records["weight"] = batch.weight[order]
        counts = np.bincount(bucket, minlength=len(starts))
        stops = np.cumsum(counts)
        for number in counts.nonzero()[0].tolist():
            yield number, records[stops[number] - counts[number] : stops[number]]

    def _scratch(self, bucket: int) -> Path:
        return self.folder / f"bucket-{bucket}"

    # One file after the other.

    def sort(self, ends: list[int]) -> Sorted:
        """Sort every bucket and append it to the store's arrays."""
        state = self.journal.state(SORT) or {
            "buckets": 0, "edges": 0, "self_loops": 0, "duplicates": 0, "balance": 0
        }  # fmt: skip
        done = state["buckets"]
        column_type = np.int32 if self.num_nodes < 2**31 else np.int64
        nodes = ends[done - 1] if done else 0
        with ExitStack() as stack:

            def grow(name: str, dtype: npt.DTypeLike, rows: int) -> GrowingArray:
                return stack.enter_context(GrowingArray(self.folder / name, dtype, rows))

            column, degree = grow(COLUMN, column_type, state["edges"]), grow(DEGREE, np.float32, nodes)
            pointer = grow(POINTER, np.int64, nodes + 1 if done else 0)
            arrays = [column, degree, pointer]
            weight = grow(WEIGHT, np.float32, state["edges"]) if self.edges.has_weight else None
            if weight is not None:
                arrays.append(weight)
            if not done:
                pointer.append(np.zeros(1))
            for bucket in range(done, len(ends)):
                start = ends[bucket - 1] if bucket else 0
                part = Part.read(self._scratch(bucket), ends[bucket] - start, self.num_nodes, self.edges.has_weight)
                pointer.append(np.cumsum(part.counts) + column.rows)
                degree.append(part.degree(start))
                column.append(part.source)
                if weight is not None and part.weight is not None:
                    weight.append(part.weight)
                for array in arrays:
                    array.settle()
                state = {
                    "buckets": bucket + 1,
                    "edges": column.rows,
                    "self_loops": state["self_loops"] + int(part.loops(start).sum()),
                    "duplicates": state["duplicates"] + part.duplicates,
                    "balance": (state["balance"] + part.balance(start)) % 2**64,
                }
                self.journal.note(SORT, **state)
                self._scratch(bucket).unlink(missing_ok=True)
        return Sorted(state["edges"], state["self_loops"], state["duplicates"], state["balance"] == 0)
