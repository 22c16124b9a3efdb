"""Which nodes are the seeds of which step, and batches made ahead of the steps that need them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from aggbuffer.scale.hashing import ORDER, key_of

Made = TypeVar("Made")


class Schedule(Protocol):
    """The seeds of every step."""

    @property
    def steps(self) -> int:
        """To one pass over all nodes."""
        ...

    def epoch(self, number: int) -> Iterator[Tensor]:
        """Seeds ``[n]`` of every step of a pass, which together are all nodes; the same for the same number."""
        ...


class Shuffled:
    """All nodes in a new order each epoch, so that each batch has its share of training nodes.

    The loss of a batch weighs its nodes as if it had exactly that share; over an epoch the estimates of both terms are
    those of the whole graph.

    Args:
        num_nodes: N.
        train: ``[M]`` training nodes.
        seeds: How many nodes a batch has at most.
        seed: Of the order.
    """

    def __init__(self, num_nodes: int, train: Tensor, seeds: int, seed: int) -> None:
        others = torch.ones(num_nodes, dtype=torch.bool)
        others[train] = False
        self._groups = (train, others.nonzero().squeeze(-1))
        self.seed, self.steps = seed, -(-num_nodes // seeds)

    def epoch(self, number: int) -> Iterator[Tensor]:
        draw = _generator(self.seed, number)
        shuffled = [group[torch.randperm(group.numel(), generator=draw)] for group in self._groups]
        for step in range(self.steps):
            parts = (group[_part(group.numel(), step, self.steps, turned)] for turned, group in enumerate(shuffled))
            yield torch.cat(list(parts))


class ShuffledClusters:
    """Unions of a few clusters, of all clusters in a new order each epoch.

    Args:
        clusters: ``[N]`` the cluster of every node.
        count: How many clusters.
        seeds: How many nodes a union has, about.
        seed: Of the order.
    """

    def __init__(self, clusters: Tensor, count: int, seeds: int, seed: int) -> None:
        sizes = torch.bincount(clusters, minlength=count).tolist()
        self._nodes = torch.split(clusters.argsort(stable=True), sizes)
        self._together = max(1, round(seeds * count / clusters.numel()))
        self.seed, self.steps = seed, -(-count // self._together)

    def epoch(self, number: int) -> Iterator[Tensor]:
        order = torch.randperm(len(self._nodes), generator=_generator(self.seed, number))
        for some in torch.split(order, self._together):
            yield torch.cat([self._nodes[int(cluster)] for cluster in some])


def _part(count: int, step: int, steps: int, turned: int) -> slice:
    """Part number ``step`` of ``steps`` nearly equal parts; ``turned`` has the larger parts come last."""
    if turned:
        step = steps - 1 - step
    return slice(step * count // steps, (step + 1) * count // steps)


def _generator(seed: int, epoch: int) -> torch.Generator:
    return torch.Generator().manual_seed(key_of(seed, epoch, ORDER) & (2**63 - 1))


def prefetched(makers: Iterable[Callable[[], Made]], ahead: int) -> Iterator[Made]:
    """What each of ``makers`` makes, in order; up to ``ahead`` of them ahead, one by one, in a thread of their own."""
    if ahead == 0:
        for make in makers:
            yield make()
        return
    waiting: deque[Future[Made]] = deque()
    with ThreadPoolExecutor(1, "aggbuffer-batches") as pool:
        try:
            for make in makers:
                waiting.append(pool.submit(make))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
