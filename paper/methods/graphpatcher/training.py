"""How the generator learns: with what it made, a badly cut anchor shall look like a less cut one."""

from __future__ import annotations

import copy
import time
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from aggbuffer.fast.memory import kept_between_steps
from aggbuffer.graph import Graph
from aggbuffer.losses import divergence
from paper.bases import GNN
from paper.methods import Outcome, Task, gcn
from paper.methods.graphpatcher.local import Ego, Net, Seen, Surroundings, answers
from paper.methods.graphpatcher.model import Generator, PatchedGNN, read

DEFAULTS: dict[str, Any] = {
    "hidden": 1024,
    "dropout": 0.2,
    "lr": 1e-4,
    "weight_decay": 5e-4,
    "batch": 64,
    "cuts": (0.9, 0.6, 0.3),
    "samples": 10,
    "most_patches": 5,
    "validate_every": 10,
    "patience": 10,
    "max_iterations": 1000,
}


class Curriculum:
    """One frozen GNN on one graph, and the steps of a generator's training on it.

    Args:
        gnn: The frozen GNN.
        data: The graph, undirected.
        params: As in ``DEFAULTS``.
        generator: Of everything random.
    """

    def __init__(self, gnn: GNN, data: Data, params: dict[str, Any], generator: torch.Generator) -> None:
        if not Graph.of(data).is_undirected:
            raise ValueError("GraphPatcher is written for undirected graphs: an anchor is its neighbours' neighbour")
        self.x, self.params, self.generator = data.x, params, generator
        self.around = Surroundings(data.edge_index, data.num_nodes)
        self.anchors = (self.around.degree.squeeze(-1) > 1).nonzero().squeeze(-1)
        self.net = read(gnn)
        with torch.no_grad():
            self.seen = Seen.of(self.net, data.x @ self.net.maps.t(), self.around)

    def loss(self, made_by: Generator) -> Tensor:
        """Of one batch of anchors: from the strongest cut on, each virtual neighbour makes up for a step less of it."""
        order = torch.randperm(self.anchors.numel(), generator=self.generator)
        ego = self.around.ego(self.anchors[order[: self.params["batch"]]])
        nodes, ego = ego.numbered_anew()
        x, seen, cuts = self.x[nodes], self.seen.only(nodes), self.params["cuts"]
        net = made_by.net()
        seen_by_generator = self._seen(net, nodes)
        own = made_by.own(x[ego.anchors])
        kept = self._cut(ego, cuts[0])
        virtual = x.new_empty(ego.anchors.numel(), 0, x.size(1))
        total = torch.zeros(())
        for cut in (*cuts[1:], 0.0):
            read_out = answers(net, seen_by_generator, ego, kept, virtual @ net.maps.t())
            made = made_by.last(made_by.code(read_out, own)).unsqueeze(1)
            helped = answers(self.net, seen, ego, kept, torch.cat([virtual, made], dim=1) @ self.net.maps.t())
            total = total + divergence(self._target(seen, ego, cut), helped, "multiclass").mean()
            virtual = torch.cat([virtual, made.detach()], dim=1)
        return total

    def _seen(self, net: Net, nodes: Tensor) -> Seen:
        """What the generator's GCN makes of some nodes: their features and their aggregations through one map."""
        receive, send = net.by_degree(self.around.degree)
        near = self.around.ego(nodes)
        sums = near.summed(send[near.near] * self.x[near.near])
        aggregated = receive[nodes] * (sums + send[nodes] * self.x[nodes])
        mapped, mapped_aggregation = (torch.cat([self.x[nodes], aggregated]) @ net.maps.t()).chunk(2)
        return Seen(mapped, None, mapped_aggregation, receive[nodes], send[nodes])

    def _cut(self, ego: Ego, share: float) -> Tensor:
        """Which neighbours' messages still reach their anchor when a random share does not, ``[M, 1]``."""
        return (torch.rand(ego.near.numel(), 1, generator=self.generator) >= share).float()

    @torch.no_grad()
    def _target(self, seen: Seen, ego: Ego, cut: float) -> Tensor:
        """Log of what the GNN answers on less cut graphs, in the mean over several; on the graph itself at the end."""
        nothing = self.x.new_empty(ego.anchors.numel(), 0, self.net.maps.size(0))
        draws = self.params["samples"] if cut else 1
        found = [answers(self.net, seen, ego, self._cut(ego, cut), nothing) for _ in range(draws)]
        return torch.stack([F.softmax(logits, -1) for logits in found]).mean(0).clamp_min(1e-12).log()


def train(task: Task) -> Outcome:
    """``params`` as in ``DEFAULTS``; the number of patches, from 1 on, is picked on validation accuracy."""
    params = task.merged(**DEFAULTS)
    base = gcn.train(gcn.alone(task))
    started = time.monotonic()
    assert isinstance(base.model, GNN)
    model, progress = fit(base.model, task.data, params, task.split)
    seconds = {**base.record["seconds"], "patch": time.monotonic() - started}
    record = {"base": base.record, "settings": asdict(task.base), "params": params, **progress, "seconds": seconds}
    return Outcome(model, record)


def fit(gnn: GNN, data: Data, params: dict[str, Any], seed: int) -> tuple[PatchedGNN, dict[str, Any]]:
    """Train a generator until the validation accuracy of the helped GNN stops improving.

    Args:
        gnn: The frozen GNN.
        data: With labels and ``val_mask``.
        params: As in ``DEFAULTS``; ``patience`` counts validations.
        seed: Of the initial weights and everything random.
    """
    gnn.requires_grad_(False)
    draw = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made_by = Generator(data.num_features, params["hidden"], params["dropout"])
    made_by.generator = draw
    optimizer = torch.optim.AdamW(
        made_by.parameters(), lr=params["lr"], weight_decay=params["weight_decay"], fused=True
    )
    model = PatchedGNN(gnn, made_by, patches=1)
    counts = range(1, params["most_patches"] + 1)
    nodes = data.val_mask.nonzero().squeeze(-1)
    best, best_epoch, best_state, iteration = -1.0, 0, copy.deepcopy(made_by.state_dict()), 0
    with kept_between_steps():
        curriculum = Curriculum(gnn, data, params, draw)
        while iteration < params["max_iterations"]:
            iteration += 1
            made_by.train()
            loss = curriculum.loss(made_by)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if iteration % params["validate_every"]:
                continue
            made_by.eval()
            right = model.patched(data.x, data.edge_index, nodes, counts).argmax(-1) == data.y[nodes]
            accuracy, at = right.float().mean(1).max(0)
            if accuracy.item() > best:
                best, best_epoch, best_state = accuracy.item(), iteration, copy.deepcopy(made_by.state_dict())
                model.patches = counts[int(at)]
            if iteration - best_epoch >= params["patience"] * params["validate_every"]:
                break
    made_by.load_state_dict(best_state)
    made_by.generator = None
    progress = {"epochs": iteration, "best_epoch": best_epoch, "val_accuracy": best, "patches": model.patches}
    return model.eval(), progress
