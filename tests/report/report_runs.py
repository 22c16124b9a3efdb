"""Short fits to make reports of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

from aggbuffer import FitConfig
from aggbuffer.report import fit_and_judge

Record = dict[str, Any]


def small(task: str = "multiclass") -> Data:
    """Three linked classes, with labels of the asked kind and masks."""
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(90) % 3
    x = torch.nn.functional.one_hot(y, 4).float() + 0.8 * torch.randn(90, 4, generator=draw)
    ends = torch.randint(90, (2, 600), generator=draw)
    ends = torch.unique(ends[:, (y[ends[0]] == y[ends[1]]) & (ends[0] < ends[1])], dim=1)
    part = torch.rand(90, generator=draw)
    masks = {"train_mask": part < 0.3, "val_mask": (part >= 0.3) & (part < 0.6), "test_mask": part >= 0.6}
    labels = {
        "multiclass": y,
        "multilabel": torch.stack([y == 0, y != 1, x[:, 0] > 0], dim=1).float(),
        "regression": torch.stack([x[:, 0] + y, x[:, 1] - y, x[:, 2]], dim=1),
    }[task]
    return Data(x=x, y=labels, edge_index=torch.cat([ends, ends.flip(0)], dim=1), **masks)


def fitted(folder: Path, data: Data, **options: Any) -> Record:
    """The record of a short fit on a small graph."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        gnn = GCN(4, 8, 2, 3)
    config = options.pop("config", FitConfig(max_epochs=40, seed=7))
    run = fit_and_judge(gnn, data, folder / "x.aggbuffer.safetensors", config=config, progress=False, **options)
    return run.to_dict(title="A <b>title</b> & more", description="What it is.", load_code='ab.load(gnn, "x")')
