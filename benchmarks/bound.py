"""A lower bound for a buffer-training step: what no order of the work avoids, at the best rates of the machine.

Counted are the products that depend on this step's weights or this step's graph, the edges that have to be picked, and
the hidden arrays that torch has to read and write between its kernels. Not counted is whatever is a constant of the
run: the base's first linear map and its clean aggregation. A dense product takes its arithmetic at the best rate of
any shape, or the bytes of its matrices at the rate of a copy; a sparse one the rows that it gathers.

Without dropout the clean pass of a step is the evaluation of the step before, so two passes are counted and not three.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.machine import FLOAT, Machine


@dataclass(frozen=True)
class Work:
    """The sizes that a step's cost follows from.

    Attributes:
        nodes: N.
        edges: E, both directions.
        feature_entries: How many entries of X are not zero.
        widths: F, the hidden widths, C.
        kept: The share of the edges that the perturbed graph keeps.
        dropout: Whether hidden entries are dropped.
        normalised: Whether there are residual connections and LayerNorm.
    """

    nodes: int
    edges: int
    feature_entries: int
    widths: tuple[int, ...]
    kept: float
    dropout: bool
    normalised: bool

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Work:
        """The work of a result of ``step``."""
        s = result["settings"]
        widths = (result["features"], *[s["hidden"]] * (s["layers"] - 1), s["classes"])
        return cls(
            result["nodes"],
            result["directed_edges"],
            result["feature_entries"],
            widths,
            1 - s["drop_edge"],
            s["dropout"] > 0,
            s["residual"],
        )

    @property
    def clean_entries(self) -> float:
        """Of the whole graph's adjacency, with a self-loop at every node."""
        return self.edges + self.nodes

    @property
    def perturbed_entries(self) -> float:
        """Of the perturbed graph's, on average."""
        return self.edges * self.kept + self.nodes

    @property
    def clean_passes(self) -> int:
        """Passes over the whole graph, the evaluation among them."""
        return 2 if self.dropout else 1


def terms(work: Work, machine: Machine) -> dict[str, float]:
    """Seconds of every part of a step."""
    return {
        "features times buffer weights": _features(work, machine),
        "their gradient": _features_gradient(work, machine),
        "perturbed first aggregation": _first_aggregation(work, machine),
        "later layers, forward": _later_forward(work, machine),
        "later layers, backward": _later_backward(work, machine),
        "hidden arrays, forward": _hidden_forward(work, machine),
        "hidden arrays, backward": _hidden_backward(work, machine),
        "picking edges": _edges(work, machine),
        "losses": _losses(work, machine),
        "Adam": _adam(work, machine),
    }


def _features(work: Work, machine: Machine) -> float:
    """X times the rows of all W(l) that read X, once a step, as a sparse or as a dense matrix."""
    width = sum(work.widths[1:])
    sparse = machine.gather(work.feature_entries, width, work.widths[0])
    return min(sparse, machine.product(work.nodes, work.widths[0], width))


def _features_gradient(work: Work, machine: Machine) -> float:
    """Xᵀ times the sum of what arrives from the clean and the perturbed pass."""
    width = sum(work.widths[1:])
    sparse = machine.gather(work.feature_entries, width, work.nodes)
    return min(sparse, machine.product(work.widths[0], work.nodes, width))


def _first_aggregation(work: Work, machine: Machine) -> float:
    """Of X W, which is a constant, or of X, which is then multiplied; no gradient is wanted of either."""
    inner, width = work.widths[:2]
    mapped = machine.gather(work.perturbed_entries, width, work.nodes)
    plain = machine.gather(work.perturbed_entries, inner, work.nodes) + machine.product(work.nodes, inner, width)
    return min(mapped, plain)


def _later_forward(work: Work, machine: Machine) -> float:
    """The base's linear map and the buffer's part of every hidden state, and the aggregation of the narrower side."""
    passes, total = work.clean_passes + 1, 0.0
    for before, inner, width in _later(work):
        total += passes * (_map(work, machine, inner, width) + _read(work, machine, before, width))
        total += _aggregations(work, machine, min(inner, width), work.clean_passes)
    return total


def _later_backward(work: Work, machine: Machine) -> float:
    """For both trained passes: gradients of the hidden states and of the weights that read them."""
    total = 0.0
    for before, inner, width in _later(work):
        # The gradient of the states costs what the states' products cost, and that of the weights the buffer's again.
        total += 2 * (_map(work, machine, inner, width) + 2 * _read(work, machine, before, width))
        total += _aggregations(work, machine, min(inner, width), 1)
    return total


def _hidden_forward(work: Work, machine: Machine) -> float:
    """Passes over N x H arrays.

    Adding the buffer's term reads two and writes one, the activation reads and writes one, LayerNorm too; dropout
    reads one with a mask of a byte an entry and writes one, in the two trained passes.
    """
    total = 0.0
    for array in _hidden_arrays(work):
        arrays = (work.clean_passes + 1) * (3 + 2 + 2 * work.normalised) + 2 * 2.25 * work.dropout
        total += machine.move(arrays * array, array)
    return total


def _hidden_backward(work: Work, machine: Machine) -> float:
    """For both trained passes: activation (three arrays), degree (two), LayerNorm (three), dropout; once, their sum."""
    total = 0.0
    for array in _hidden_arrays(work):
        arrays = 2 * (3 + 2 + 3 * work.normalised + 2.25 * work.dropout) + 3
        total += machine.move(arrays * array, array)
    return total


def _edges(work: Work, machine: Machine) -> float:
    """A draw for every edge; for every entry kept its column (read, written) and its value (two degrees, written)."""
    moved = work.edges / 2 * FLOAT + work.clean_entries + work.perturbed_entries * 5 * FLOAT
    return machine.move(moved, FLOAT * work.perturbed_entries)


def _losses(work: Work, machine: Machine) -> float:
    """Log-probabilities (read, written), their divergences (two reads), and back: five arrays for either pass."""
    array = FLOAT * work.nodes * work.widths[-1]
    return machine.move(2 * (2 + 2 + 5) * array, array)


def _adam(work: Work, machine: Machine) -> float:
    """Parameter, gradient and two moments are read, all but the gradient written."""
    parameters = sum(sum(work.widths[:i]) * work.widths[i] for i in range(1, len(work.widths)))
    return machine.move(7 * FLOAT * parameters, FLOAT * parameters)


def _later(work: Work) -> list[tuple[int, int, int]]:
    """For every layer but the first: all hidden widths before it together, its own input's, its output's."""
    found = []
    for i, (inner, width) in enumerate(itertools.pairwise(work.widths)):
        if i:
            found.append((sum(work.widths[1 : i + 1]), inner, width))
    return found


def _map(work: Work, machine: Machine, inner: int, width: int) -> float:
    """The base's map; a residual connection maps the same input."""
    return machine.product(work.nodes, inner, width * (2 if work.normalised else 1))


def _read(work: Work, machine: Machine, before: int, width: int) -> float:
    """The buffer's product with the hidden states; undropped states are read for the base's map already."""
    alone = machine.product(work.nodes, before, width)
    if work.dropout:
        return alone
    together = machine.product(work.nodes, before, 2 * width) - machine.product(work.nodes, before, width)
    return min(alone, together)


def _aggregations(work: Work, machine: Machine, width: int, clean: int) -> float:
    """``clean`` aggregations over the whole graph and one over the perturbed one."""
    entries = clean * work.clean_entries + work.perturbed_entries
    return machine.gather(entries, width, work.nodes)


def _hidden_arrays(work: Work) -> list[float]:
    return [FLOAT * work.nodes * width for width in work.widths[1:-1]]
