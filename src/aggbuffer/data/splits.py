"""Train, validation and test masks: drawn at random, or picked from several that a file holds."""

from __future__ import annotations

import torch
from torch import Tensor

from aggbuffer.errors import GraphError

MASKS = ("train_mask", "val_mask", "test_mask")


def random_masks(num_nodes: int, seed: int, train: float = 0.1, val: float = 0.1) -> dict[str, Tensor]:
    """Split the nodes at random, blind to their labels; the rest is the test set.

    Args:
        num_nodes: N.
        seed: of a generator made here; the global one is not touched.
        train: share of the nodes to train on.
        val: share of the nodes to validate on.

    Returns:
        ``train_mask``, ``val_mask`` and ``test_mask``, each ``[N]`` bool, disjoint and together complete.
    """
    order = torch.randperm(num_nodes, generator=torch.Generator().manual_seed(seed))
    first, second = round(num_nodes * train), round(num_nodes * (train + val))
    masks = {}
    for name, part in zip(MASKS, order.tensor_split([first, second]), strict=True):
        masks[name] = torch.zeros(num_nodes, dtype=torch.bool)
        masks[name][part] = True
    return masks


def pick_mask(mask: Tensor, split: int, num_nodes: int, name: str) -> Tensor:
    """Take one split out of a mask that may hold several.

    Args:
        mask: ``[N]``, or several splits as ``[N, S]`` or ``[S, N]``.
        split: which of the S, counted from 0; an ``[N]`` mask serves every split.
        num_nodes: N; tells the two 2-D layouts apart.
        name: of the mask, for messages.

    Returns:
        ``[N]`` bool.

    Raises:
        GraphError: if no axis has N entries, or there is no such split.
    """
    if mask.dim() > 2 or num_nodes not in mask.shape:
        raise GraphError(
            f"{name} has shape {list(mask.shape)}, but the graph has {num_nodes:,} nodes; "
            f"give one entry per node, or one row per split."
        )
    if mask.dim() == 1:
        return mask.bool()
    # PyG stacks splits as columns, the published .npz files as rows.
    columns = mask if mask.shape[0] == num_nodes else mask.t()
    if not 0 <= split < columns.shape[1]:
        raise GraphError(
            f"{name} holds {columns.shape[1]} splits, numbered from 0, and split {split} was asked for; "
            f"choose one from 0 to {columns.shape[1] - 1}."
        )
    return columns[:, split].bool().contiguous()
