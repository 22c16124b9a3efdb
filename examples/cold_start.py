"""Nodes that arrive with no edges, or with one: how well are exactly those answered, before and after?

The model is trained on a graph in which everybody has the links they will ever have. In service, a quarter of the
test nodes is new: they come with no link, or with a single one. Nothing of that is known while the buffer is fitted.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

import aggbuffer as ab
from aggbuffer.demo import train_base


def choose_newcomers(data: Data, share: float = 0.25, seed: int = 0) -> Tensor:
    """Some of the test nodes that have links today, ``[M]``."""
    degree = torch.bincount(data.edge_index[1], minlength=data.num_nodes)
    candidates = (data.test_mask & (degree > 0)).nonzero().squeeze(1)
    order = torch.randperm(len(candidates), generator=torch.Generator().manual_seed(seed))
    return candidates[order[: int(share * len(candidates))]]


def with_newcomers(data: Data, newcomers: Tensor, links: int, seed: int = 0) -> Data:
    """The graph in which every newcomer has kept at most ``links`` of its own edges, both directions of each."""
    generator = torch.Generator().manual_seed(seed)
    source, target = data.edge_index
    is_new = torch.zeros(data.num_nodes, dtype=torch.bool)
    is_new[newcomers] = True
    keep = ~(is_new[source] | is_new[target])
    for node in newcomers.tolist():
        # Only links to nodes that were there before: of two newcomers, neither knows the other.
        own = ((target == node) & ~is_new[source]).nonzero().squeeze(1)
        for edge in own[torch.randperm(len(own), generator=generator)[:links]].tolist():
            keep |= (source == source[edge]) & (target == node)
            keep |= (target == source[edge]) & (source == node)
    today = data.clone()
    today.edge_index = data.edge_index[:, keep]
    return today


def main() -> None:
    data = ab.data.demo_graph()
    gnn, _ = train_base(data)
    newcomers = choose_newcomers(data)

    # Fitted without the newcomers' edges: what serves them must not have seen them linked.
    history = with_newcomers(data, newcomers, links=0)
    model = ab.attach(gnn, history)
    ab.fit(model, history, drop_edge=0.7, strength=0.5, max_epochs=300, progress=False)

    print(f"{len(newcomers)} nodes arrive; accuracy on exactly those:")
    for links in (0, 1, 2):
        today = with_newcomers(data, newcomers, links)
        with model.disabled():
            before = ab.evaluate(model, today, mask=newcomers, keep=[1])
        after = ab.evaluate(model, today, mask=newcomers, keep=[1])
        change = ab.compare(before, after)["overall"]
        low, high = 100 * change.accuracy.low, 100 * change.accuracy.high
        print(
            f"  with at most {links} links: {change.before.accuracy:.1%} -> {change.after.accuracy:.1%} "
            f"(points gained: {low:+.1f} to {high:+.1f} with 95 % confidence)"
        )


if __name__ == "__main__":
    main()
