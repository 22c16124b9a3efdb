"""A small real graph that comes with the package: handwritten digits, joined to their likes.

The samples are scikit-learn's copy of the test part of "Optical Recognition of Handwritten Digits"
(E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998, doi:10.24432/C50P49),
licensed CC BY 4.0: 1,797 images of 8 x 8 pixels from 0 to 16, kept unchanged in ``digits.npz``. What the
images do not bring is a graph; that is made here, and made hard on purpose.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from aggbuffer.data.edges import undirected
from aggbuffer.data.splits import random_masks

if TYPE_CHECKING:
    from torch_geometric.data import Data

DEMO_DESCRIPTION = (
    "1,797 real handwritten digits (UCI, CC BY 4.0), each linked to digits that look alike, with uneven degrees "
    "and 30 % random links on top; the model sees only the upper half of every image. The images are real, the "
    "links are made for this demonstration: its numbers promise nothing for your graph."
)

NEIGHBOURS = 8
NOISE = 0.3  # random links, as a share of the similarity links that survive the thinning
FLOOR = 0.3  # the least sociable sample; smaller thins the links more
TAIL = 1.5  # exponent of the Pareto law of sociability; smaller makes degrees more uneven


def demo_graph(seed: int = 0) -> Data:
    """Build the demonstration graph.

    Every sample is linked to its 8 nearest neighbours by the whole image, while the model sees the upper
    half: the links tell what the features hide. They are thinned by a heavy-tailed sociability per sample,
    so degrees are uneven, and random links are added last, so some of them lie. The result is undirected,
    without duplicates or self-loops.

    Args:
        seed: decides sociability, random links and the 10/10/80 split; the global generator is not touched.

    Returns:
        ``x`` ``[1797, 32]`` float32 in [0, 1], ``y`` ``[1797]`` int64, ``edge_index`` ``[2, E]`` and
        ``train_mask``, ``val_mask``, ``test_mask`` ``[1797]`` bool.
    """
    from torch_geometric.data import Data

    pixels, labels = _digits()
    upper = pixels[:, : pixels.shape[1] // 2]
    generator = torch.Generator().manual_seed(seed)
    alike = _thin(_nearest(pixels, NEIGHBOURS), len(pixels), generator)
    edge_index = _add_random_links(alike, len(pixels), generator)
    return Data(x=upper.float() / 16, y=labels, edge_index=edge_index, **random_masks(len(pixels), seed))


def _digits() -> tuple[Tensor, Tensor]:
    """The embedded samples: pixels ``[1797, 64]`` and labels ``[1797]``, both int64."""
    with (
        resources.files(__package__).joinpath("digits.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as arrays,
    ):
        return torch.from_numpy(arrays["images"]).long(), torch.from_numpy(arrays["labels"]).long()


def _nearest(points: Tensor, count: int) -> Tensor:
    """Link every sample to its nearest: ``[2, E]``, one direction, each pair once.

    Distances of integer pixels often tie. They are compared as integers and ties go to the lower index,
    so that every machine builds the same graph.
    """
    norms = points.square().sum(1)
    distance = norms[:, None] + norms[None, :] - 2 * points @ points.t()
    distance.fill_diagonal_(int(distance.max()) + 1)
    rank = distance * len(points) + torch.arange(len(points))
    nearest = rank.topk(count, largest=False).indices
    pairs = torch.stack([torch.arange(len(points)).repeat_interleave(count), nearest.flatten()])
    return _once(undirected(pairs, len(points)))


def _thin(edges: Tensor, num_nodes: int, generator: torch.Generator) -> Tensor:
    """Keep a link with the product of its ends' sociabilities as its probability."""
    uniform = torch.rand(num_nodes, generator=generator, dtype=torch.float64)
    sociability = FLOOR * uniform ** (-1 / TAIL)
    keep = sociability[edges[0]] * sociability[edges[1]]
    return edges[:, torch.rand(edges.shape[1], generator=generator, dtype=torch.float64) < keep]


def _add_random_links(edges: Tensor, num_nodes: int, generator: torch.Generator) -> Tensor:
    """Add random links and give every link both directions."""
    count = round(NOISE * edges.shape[1])
    noise = torch.randint(num_nodes, (2, count), generator=generator)
    return undirected(torch.cat([edges, noise], dim=1), num_nodes)


def _once(edge_index: Tensor) -> Tensor:
    """Of the two directions of every edge, the one that goes up."""
    return edge_index[:, edge_index[0] < edge_index[1]]
