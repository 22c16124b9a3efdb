"""Trained base models on disk, one file for each dataset, split, method and choice of every setting."""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch_geometric.data import Data

from aggbuffer.files import write_safetensors
from paper.bases.models import new
from paper.bases.training import Trained
from paper.settings import BaseSettings


def kept(
    folder: Path,
    name: str,
    data: Data,
    settings: BaseSettings,
    params: Mapping[str, Any],
    train: Callable[[], Trained],
) -> Trained:
    """The model that ``train`` makes, trained once for all processes that want it.

    Args:
        folder: Where models are kept.
        name: Of graph, split and method, for file names.
        data: The graph, for the model's widths.
        settings: Of the base.
        params: Whatever else decides the result.
        train: Makes it.
    """
    path = file_for(folder, name, settings, params)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(path.with_suffix(".lock")):
        if not path.exists():
            trained = train()
            write_safetensors(trained.gnn.state_dict(), path, {"record": json.dumps(trained.record())})
    gnn = new(data, settings, seed=0).eval()
    with safe_open(path, framework="pt") as file:
        gnn.load_state_dict({key: file.get_tensor(key) for key in file.keys()})  # noqa: SIM118 (a file is no mapping)
        record = json.loads(file.metadata()["record"])
    return Trained(gnn, **record)


def file_for(folder: Path, name: str, settings: BaseSettings, params: Mapping[str, Any]) -> Path:
    """Where a model is kept; another choice of any setting is another file."""
    text = json.dumps([asdict(settings), dict(params)], sort_keys=True)
    return folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.safetensors"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Only one process at a time is inside; a lock goes with the process that holds it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
