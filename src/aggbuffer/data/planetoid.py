"""Cora, CiteSeer and PubMed from their published files.

The Planetoid files are pickles of Python 2 that hold NumPy arrays, SciPy matrices and a dictionary. They are
read by an unpickler that knows these and nothing else, so it needs no SciPy and can run no code.
"""

from __future__ import annotations

import pickle
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from aggbuffer.data.edges import dense_from_csr, undirected
from aggbuffer.errors import DataUnavailableError

PICKLES = {"allx", "ally", "tx", "ty", "graph", "test.index"}

# Cora's classes in the order that gives the Planetoid files their numbers.
CORA_CLASSES = (
    "Theory",
    "Reinforcement_Learning",
    "Genetic_Algorithms",
    "Neural_Networks",
    "Probabilistic_Methods",
    "Case_Based",
    "Rule_Learning",
)


def read_planetoid(folder: Path) -> dict[str, Tensor]:
    """Read whichever form of the graph the folder holds.

    Returns:
        ``x`` ``[N, F]`` with every row summing to 1 (empty rows stay 0), as the paper's loader gives it,
        ``edge_index`` ``[2, E]`` undirected, ``y`` ``[N]``.
    """
    raw = folder / "raw"
    pickles = {path.name.split(".", 2)[2]: path for path in sorted(raw.glob("ind.*"))}
    # A download that broke off may have left some of the pickles beside Cora's text files.
    items = _from_pickles(pickles) if pickles.keys() >= PICKLES else _from_text(raw)
    # A node without words has a sum of zero, and stays a row of zeros.
    items["x"] /= items["x"].sum(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    return items


def _from_pickles(files: dict[str, Path]) -> dict[str, Tensor]:
    # CiteSeer's test nodes have gaps: nodes that no file describes. They stay without words, in class 0.
    test = torch.from_numpy(np.loadtxt(files["test.index"], dtype=np.int64))
    words, test_words = _matrix(files["allx"]), _matrix(files["tx"])
    num_nodes = max(len(words), int(test.max()) + 1)
    x = torch.zeros(num_nodes, words.shape[1])
    y = torch.zeros(num_nodes, dtype=torch.long)
    x[: len(words)], x[test] = words, test_words
    y[: len(words)], y[test] = _matrix(files["ally"]).argmax(1), _matrix(files["ty"]).argmax(1)
    neighbours: dict[int, list[int]] = _unpickle(files["graph"])
    pairs = [(source, target) for source, targets in neighbours.items() for target in targets]
    return {"x": x, "y": y, "edge_index": undirected(torch.tensor(pairs).t(), num_nodes)}


def _from_text(raw: Path) -> dict[str, Tensor]:
    """Cora as first published: one line per paper in ``cora.content``, one per citation in ``cora.cites``."""
    papers = [line.split() for line in (raw / "cora.content").read_text(encoding="utf-8").splitlines()]
    row_of = {paper[0]: row for row, paper in enumerate(papers)}
    # Every word is the digit 0 or 1: its byte tells, a thousand times faster than parsing numbers.
    words = [np.frombuffer("".join(paper[1:-1]).encode(), dtype=np.uint8) - ord("0") for paper in papers]
    cites = (raw / "cora.cites").read_text(encoding="utf-8").split()
    pairs = torch.tensor([row_of[paper] for paper in cites]).view(-1, 2)
    return {
        "x": torch.from_numpy(np.stack(words)).float(),
        "y": torch.tensor([CORA_CLASSES.index(paper[-1]) for paper in papers]),
        "edge_index": undirected(pairs.t(), len(papers)),
    }


class _SparseRows:
    """Stands in for SciPy's matrix, whose state these are."""

    data: npt.NDArray[np.float32]
    indices: npt.NDArray[np.int32]
    indptr: npt.NDArray[np.int32]
    _shape: tuple[int, int]

    def dense(self) -> Tensor:
        indptr, indices, values = map(torch.from_numpy, (self.indptr, self.indices, self.data))
        return dense_from_csr(indptr, indices, values, self._shape[1])


class _Unpickler(pickle.Unpickler):
    allowed = {  # noqa: RUF012 - a constant
        ("scipy.sparse.csr", "csr_matrix"): _SparseRows,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        # Where this function lives differs between versions of NumPy; an array knows.
        ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
        ("collections", "defaultdict"): defaultdict,
        ("__builtin__", "list"): list,
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self.allowed[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}") from None


def _unpickle(path: Path) -> Any:
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy dislikes how it wrote types itself, ten years ago
            return _Unpickler(file, encoding="latin1").load()
    except (pickle.UnpicklingError, EOFError, ValueError, AttributeError) as error:
        raise DataUnavailableError(
            f"{path} is not a Planetoid file ({error}); remove it and get the graph again."
        ) from None


def _matrix(path: Path) -> Tensor:
    content = _unpickle(path)
    return content.dense() if isinstance(content, _SparseRows) else torch.from_numpy(content)
