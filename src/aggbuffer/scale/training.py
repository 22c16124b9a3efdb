"""Training on mini-batches: an epoch is a pass over all nodes; the rest is as in training on the whole graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv

from aggbuffer import hops, losses
from aggbuffer.checkpoint import digest_of
from aggbuffer.config import BatchConfig, FitConfig
from aggbuffer.errors import ConfigError, GraphError, ModelError
from aggbuffer.fast.layers import fast_form, sgc_propagation
from aggbuffer.fast.passes import FastPasses
from aggbuffer.io import fingerprint
from aggbuffer.model import BufferedGNN
from aggbuffer.passes import choose_passes
from aggbuffer.result import EpochRecord
from aggbuffer.scale.batch import Batch, Sampler, Union
from aggbuffer.scale.clusters import cut
from aggbuffer.scale.distributed import of_rank_0
from aggbuffer.scale.draws import DropEdge, HashedDropout
from aggbuffer.scale.forms import KHops, OneAggregation
from aggbuffer.scale.layerwise import Layerwise
from aggbuffer.scale.loader import from_loader
from aggbuffer.scale.monitors import choose_batch_monitor
from aggbuffer.scale.passes import BatchPasses
from aggbuffer.scale.ranks import Alone, Ranks
from aggbuffer.scale.schedule import Schedule, Shuffled, ShuffledClusters, prefetched
from aggbuffer.scale.source import NodeSource, check_on_cpu
from aggbuffer.scale.trial import probe
from aggbuffer.supervision import Supervision
from aggbuffer.training import Perturbation, Training, possible

# Which nodes the two terms of a loss are means over.
_OVER = {
    "rc": ("train", "all"),
    "rc_train": ("train", "train"),
    "cross_entropy": ("train", "train"),
    "pseudo_label": ("all", "all"),
    "self_distillation": ("all", "all"),
}
_CLEAN, _PERTURBED = 0, 1  # passes of a step, whose dropout differs


class BatchTraining(Training):
    """One run on mini-batches.

    Args:
        model: The model with buffers.
        source: The graph.
        config: Settings; ``config.batch`` says how batches are made.
        train_mask: Nodes of the bias term.
        val_mask: Nodes to stop on.
        loss: A loss of the user's own.
        perturb: Refused, as it would have to see the whole graph.
        loader: Batches of the user's own, in place of those that ``config.batch`` describes.
        ranks: The processes that share the work.
    """

    def __init__(
        self,
        model: BufferedGNN,
        source: NodeSource,
        config: FitConfig,
        train_mask: str | Tensor,
        val_mask: str | Tensor,
        loss: losses.LossFunction | None,
        perturb: Perturbation | None,
        loader: Iterable[Any] | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self._begin(model, config, loss, perturb)
        self.source, self.loader = source, loader
        self.ranks: Ranks = Alone() if ranks is None else ranks
        self.batching = config.batch or BatchConfig()
        self._check()
        part = probe(source)
        chosen = choose_passes(model, part.graph, config.accelerate)
        self.is_fast = isinstance(chosen, FastPasses)
        self._is_sparse = isinstance(chosen, FastPasses) and chosen.features.is_sparse
        on_fast_path = " and that runs on the fast path (float32 or float64, no edge weights, accelerate=True)"
        self.config = possible(config, self.is_fast and chosen.weighs_loops, on_fast_path)
        self.inference = Layerwise(model, source, memory=self.batching.memory)
        outputs = self.inference.plan.outputs
        self.supervision = Supervision.of(
            source, source.num_nodes, torch.device("cpu"), outputs, config, train_mask, val_mask
        )
        self._is_train = torch.zeros(source.num_nodes, dtype=torch.bool)
        self._is_train[self.supervision.train] = True
        self.own_val = self.ranks.share(self.supervision.val)
        self.inference = self.inference.at(self.own_val)
        self.schedule, self._make = self._batching()
        self._over = _OVER[config.loss] if loss is None else _OVER["rc"]
        self.monitor = choose_batch_monitor(self)
        self._keep_loops_unless_told()

    def _check(self) -> None:
        """Refuse what mini-batches cannot do."""
        check_on_cpu(self.model, self.source)
        modules = dict(self.model.base.named_modules())
        if self.source.num_features != self.model.num_features:
            raise GraphError(
                f"The graph has {self.source.num_features} features per node, but the model was attached to one with "
                f"{self.model.num_features}; pass a graph with the same features."
            )
        if self.custom_perturbation is not None:
            raise ConfigError("perturb= changes the whole graph, which mini-batches never see; leave out batch=.")
        for spec in self.model.layers:
            if getattr(modules[spec.name], "flow", "") == "target_to_source":
                raise ModelError(
                    f"The layer {spec.name!r} sends messages from target to source, but mini-batches hold the in-edges "
                    "of nodes; leave out batch=."
                )
        samples = self.batching.fanout is not None or self.batching.clusters is not None or self.loader is not None
        if self.model.config.weighted_degree and samples:
            raise ConfigError("weighted_degree=True needs all in-edges of a node; use batch=BatchConfig(fanout=None).")
        divided = self.batching.clusters is not None or self.loader is not None
        if self.ranks.size > 1 and divided:
            raise ConfigError(
                "Batches of clusters or of a loader cannot be divided among processes; use batch=BatchConfig(seeds=…)."
            )

    def _batching(self) -> tuple[Schedule, Callable[[Tensor, int], Batch]]:
        """The order of the seeds, and what makes a batch of some."""
        batching, seed = self.batching, self.config.seed
        if batching.clusters is not None:
            schedule: Schedule = ShuffledClusters(
                cut(self.source, batching.clusters), batching.clusters, batching.seeds, seed
            )
            return schedule, Union(self.source).batch
        reach, sees_rim = self._reach()
        sampler = Sampler(self.source, reach, batching.fanout, seed, sees_rim=sees_rim)
        train = self.supervision.train.cpu()
        return Shuffled(self.source.num_nodes, train, batching.seeds, seed), sampler.batch

    def _reach(self) -> tuple[int, bool]:
        """How many hops a batch reaches, and whether nodes at its rim are looked at for their degree.

        A layer that normalises by the degrees of sources asks its view for them where it runs in its fast form, which
        is without edge weights. Otherwise it counts the edges that it sees: a known one needs a batch that reaches a
        hop further, any other one as many hops as the trial has found.
        """
        modules = dict(self.model.base.named_modules())
        reach, counts_itself = 0, False
        for spec, form in zip(self.model.layers, self.inference.plan.forms, strict=True):
            conv = modules[spec.name]
            if not (hops.covers(conv) or isinstance(conv, GCNConv)):
                reach += form.hops
                continue
            reach += hops.count(conv) if hops.covers(conv) else 1
            has_fast_form = sgc_propagation(conv) or fast_form(conv) is not None
            is_unweighted = isinstance(form, OneAggregation | KHops) and form.weight is None
            counts_itself |= not (self.is_fast and has_fast_form and is_unweighted)
        return reach + counts_itself, self.is_fast

    def _first_score(self) -> float:
        return self._validated()[0]

    def _agreed(self, stop: bool) -> bool:
        asked = torch.tensor([float(stop)])
        self.ranks.add_up([asked])
        return bool(asked > 0)

    def _epoch(self, epoch: int, clean: Tensor | None) -> tuple[EpochRecord, Tensor | None]:
        """Steps over all nodes, or as many as asked for, and their validation."""
        sums, steps = torch.zeros(2, dtype=torch.float64), 0
        for step, parts in groupby(self._batches(epoch), key=itemgetter(0)):
            sums += self._descend((batch for _, batch in parts), step, epoch)
            steps += 1
        if not steps:
            raise ConfigError("The loader gave no batch; expected at least one an epoch.")
        self._steps_an_epoch = steps  # which a loader need not tell beforehand
        bias, robust = (sums / steps).tolist()
        score, val_loss, val_accuracy = self._validated()
        total = bias + self.config.strength * robust
        return EpochRecord(epoch, bias, robust, total, val_loss, val_accuracy, score), None

    def _batches(self, epoch: int) -> Iterator[tuple[int, Batch]]:
        """This process's parts of every batch of an epoch, with the number of their step in the run."""
        if self.loader is not None:
            for place, data in enumerate(self.loader):
                yield (epoch << 32) + place, from_loader(self.source, data)
            return
        most = self.batching.steps_per_epoch or self.schedule.steps
        makers = (partial(self._numbered, step, seeds) for step, seeds in self._seeds((epoch - 1) * most, most))
        yield from prefetched(makers, self.batching.prefetch)

    def _seeds(self, first: int, count: int) -> Iterator[tuple[int, Tensor]]:
        """Steps by their number in the run, and this process's seeds; passes over all nodes follow one another."""
        step = first
        while step < first + count:
            done, place = divmod(step, self.schedule.steps)
            for at, seeds in enumerate(self.schedule.epoch(done)):
                if at >= place and step < first + count:
                    yield from ((step, part) for part in self._parts(seeds))
                    step += 1

    def _parts(self, seeds: Tensor) -> Sequence[Tensor]:
        """This process's parts of the seeds of a step.

        A part is computed as a whole, to the same bits by whichever process; and their sum, in float64, is the same in
        whatever order. The first float32 digit that differs would be blown up by Adam where a gradient is near 0.
        """
        if self.batching.clusters is not None:  # a union is only whole with all its edges
            return [seeds]
        parts = seeds.tensor_split(max(self.batching.parts, self.ranks.size))
        return [parts[int(place)] for place in self.ranks.share(torch.arange(len(parts)))]

    def _numbered(self, step: int, seeds: Tensor) -> tuple[int, Batch]:
        return step, self._make(seeds, step)

    def _descend(self, parts: Iterable[Batch], step: int, epoch: int) -> Tensor:
        """One step of all processes; both terms of its loss, ``[2]``."""
        sums = [torch.zeros(p.shape, dtype=torch.float64) for p in self.parameters]
        terms = torch.zeros(2, dtype=torch.float64)
        for batch in parts:
            found, its_terms = self.gradients(batch, step)
            terms += its_terms
            for total, gradient in zip(sums, found, strict=True):
                total += gradient
        self.ranks.add_up([*sums, terms])
        gradients = [total.to(p.dtype) for total, p in zip(sums, self.parameters, strict=True)]
        self._check_finite((terms[0] + self.config.strength * terms[1]).item(), epoch)
        self._move(gradients)
        return terms

    def gradients(self, batch: Batch, step: int) -> tuple[list[Tensor], Tensor]:
        """This process's part of the gradients and of the terms ``[2]`` of a step, which all sum up."""
        config, count = self.config, batch.num_seeds
        if count == 0:
            return [torch.zeros_like(p) for p in self.parameters], torch.zeros(2, dtype=torch.float64)
        seeds = batch.nodes[:count]
        passes = BatchPasses(self.model, batch, fast=self.is_fast, sparse=self._is_sparse)
        draw = self.draw(step)
        with passes.ready():
            with self.model.disabled(), torch.no_grad():
                teacher = passes.of_seeds(passes.whole)
            with self.model.dropping(config.dropout, HashedDropout.of(config.seed, step, _CLEAN, batch.nodes)):
                clean = passes.of_seeds(passes.whole)
            with self.model.dropping(config.dropout, HashedDropout.of(config.seed, step, _PERTURBED, batch.nodes)):
                perturbed = passes.of_seeds(passes.perturbed(draw, config.drop_edge))
            train = self._is_train[seeds].nonzero().squeeze(-1)
            weights = self._weights(train.numel(), count)
            labels = self.supervision.labels
            some = None if labels is None else type(labels)(labels.task, labels.values[seeds], labels.outputs)
            if not train.numel():  # any node, whose weight is 0; with a label that can be used, as its own may not be
                train = torch.zeros(1, dtype=torch.int64)
                if labels is not None and some is not None:
                    some.values[0] = labels.values[self.supervision.train[0]]
            terms = self.loss(losses.StepOutputs(teacher, clean, perturbed, train, some, self.supervision.task))
            if not isinstance(terms, losses.LossTerms):
                raise ConfigError(f"loss returned a {type(terms).__name__}; expected LossTerms(bias, robust).")
            bias, robust = weights[0] * terms.bias, weights[1] * terms.robust
            gradients = self._gradients(bias + config.strength * robust)
        return list(gradients), torch.tensor([bias.item(), robust.item()], dtype=torch.float64)

    def _weights(self, train: int, count: int) -> tuple[float, float]:
        """What the means over a batch's nodes weigh, so that over an epoch they add up to means over all nodes."""
        if self.loader is not None:
            shares = {"train": float(train > 0), "all": 1.0}
        else:
            steps = self.schedule.steps
            shares = {
                "train": train * steps / self.supervision.train.numel(),
                "all": count * steps / self.source.num_nodes,
            }
        return shares[self._over[0]], shares[self._over[1]]

    def draw(self, step: int) -> DropEdge:
        """The perturbed graph of a step."""
        config = self.config
        return DropEdge(config.seed, step, config.drop_edge, config.directions, config.self_loops == "redrawn")

    def _validated(self) -> tuple[float, float, float]:
        """Score, validation loss and accuracy."""
        return self.monitor.score(self.everywhere(self.inference.logits()))

    def everywhere(self, rows: Tensor) -> Tensor:
        """Rows of this process's validation nodes, ``[v, C]``, to those of all, ``[V, C]``, in their order."""
        if self.ranks.size == 1:
            return rows
        places = self.ranks.gather_rows(self.ranks.share(torch.arange(self.supervision.val.numel())))
        out = torch.empty(places.numel(), rows.size(1), dtype=rows.dtype)
        out[places] = self.ranks.gather_rows(rows)
        return out

    @property
    def size(self) -> dict[str, int]:
        source = self.source
        return {"nodes": source.num_nodes, "edges": source.column.numel(), "features": source.num_features}

    def _parameters_changed(self) -> None:
        pass  # batches keep nothing that depends on them

    def _resume(self, path: Path, identity: str, state: Any) -> bool:
        with of_rank_0(path, self.ranks) as here:
            return super()._resume(here, identity, state)

    def _save(self, *args: Any) -> None:
        if self.ranks.rank == 0:
            super()._save(*args)

    def _identity(self) -> str:
        kept = ("seeds", "parts", "fanout", "clusters", "steps_per_epoch")
        batching = {name: value for name, value in self.batching.to_dict().items() if name in kept}
        settings = self._settings() | {"batch": batching, "loader": self.loader is not None}
        header = [settings, fingerprint(self.model.base), self.source.digest()]
        return digest_of(header, cast(list[Tensor | None], self._used()))
