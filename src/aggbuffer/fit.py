"""Train the buffers of a frozen model with the robustness-controlled loss and DropEdge."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from aggbuffer import losses
from aggbuffer.checkpoint import Checkpoint, optimizer_tensors, restore_optimizer, run_identity
from aggbuffer.config import FitConfig
from aggbuffer.errors import AggBufferError, ConfigError, GraphError, ModelError, ModelTypeError
from aggbuffer.graph import Graph
from aggbuffer.io import fingerprint
from aggbuffer.layers import evaluation_mode, explain_failure
from aggbuffer.model import BufferedGNN
from aggbuffer.monitors import Monitor, choose_monitor
from aggbuffer.passes import choose_passes
from aggbuffer.perturb import generator_on, keep_mask
from aggbuffer.progress import show_progress
from aggbuffer.targets import Labels, infer_task, refuse_overlap, select

logger = logging.getLogger("aggbuffer")

Perturbation = Callable[[Graph, torch.Generator], Data]
_HELD_OUT = 0.1


@dataclass(frozen=True)
class EpochRecord:
    """One epoch.

    Attributes:
        epoch: Counted from 1; epoch 0 is the untouched base.
        bias: The bias term of the step.
        robust: The robustness term of the step.
        loss: ``bias + strength * robust``.
        val_loss: The task's loss on validation nodes after the step; NaN without labels.
        val_accuracy: Accuracy there; NaN for regression or without labels.
        score: What the run is stopped on, lower is better.
    """

    epoch: int
    bias: float
    robust: float
    loss: float
    val_loss: float
    val_accuracy: float
    score: float


Callback = Callable[[EpochRecord], object]


@dataclass(frozen=True)
class FitResult:
    """What a run did.

    Attributes:
        config: Its settings.
        monitor: What it was really stopped on.
        history: Every epoch.
        best_epoch: The epoch whose state is in the model; 0 if the untouched base was best.
        best_score: The monitor there, lower is better.
        stopped: ``"patience"``, ``"max_epochs"`` or ``"callback"``.
        seconds: Wall time of all its parts, over interruptions.
    """

    config: FitConfig
    monitor: str
    history: list[EpochRecord]
    best_epoch: int
    best_score: float
    stopped: str
    seconds: float

    @property
    def epochs(self) -> int:
        return len(self.history)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values; what does not apply is None."""
        history = [
            {key: None if math.isnan(value) else value for key, value in asdict(record).items()}
            for record in self.history
        ]
        return {**asdict(self), "history": history}


@dataclass
class _State:
    """What changes from epoch to epoch, beside the parameters."""

    best: list[Tensor]
    best_epoch: int = 0
    best_score: float = math.inf
    trained_score: float = math.inf  # the best score since training began, without the untouched base
    trained_epoch: int = 0
    history: list[EpochRecord] = field(default_factory=list)
    seconds: float = 0.0


def fit(
    model: BufferedGNN,
    data: object,
    config: FitConfig | None = None,
    *,
    train_mask: str | Tensor = "train_mask",
    val_mask: str | Tensor = "val_mask",
    progress: bool | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: float = 10.0,
    callbacks: Iterable[Callback] = (),
    loss: losses.LossFunction | None = None,
    perturb: Perturbation | None = None,
    **overrides: Any,
) -> FitResult:
    """Train the buffers alone; the best state is in the model on return, and the base is as it was.

    Needs no labels: without them (or without validation nodes) training stops on the loss itself, over fixed draws of
    perturbed graphs, on nodes held out from it.

    Args:
        model: What :func:`attach` returned.
        data: The graph to train on.
        config: Settings; single ones may be given as keywords instead, as in ``fit(model, data, drop_edge=0.7)``.
        train_mask: Nodes of the bias term: a name in ``data``, a bool mask, or node numbers. Without it, all nodes
            that are not held out.
        val_mask: Nodes to stop on.
        progress: Show progress; by default where standard error is a terminal.
        checkpoint: A file to go on from after an interruption, and to write such points to.
        checkpoint_every: Seconds between two of them.
        callbacks: Called with every :class:`EpochRecord`; one that returns True ends the run.
        loss: Instead of the one that ``config`` names.
        perturb: ``perturb(graph, generator) -> Data`` instead of DropEdge.

    Raises:
        AggBufferError: For input that cannot be used, before anything was changed.

    Example:
        >>> result = aggbuffer.fit(model, data, drop_edge=0.5, strength=0.5, seed=0)
    """
    if not isinstance(model, BufferedGNN):
        raise ModelTypeError(f"The model is a {type(model).__name__}; expected what aggbuffer.attach returns.")
    if not model._enabled:
        raise ModelError("The model's buffers are detached or disabled; attach them, and call fit outside disabled().")
    config = FitConfig() if config is None else config
    if not isinstance(config, FitConfig):
        raise ConfigError(f"config is a {type(config).__name__}; expected a FitConfig, or its settings as keywords.")
    config = config.override(**overrides)
    path = None if checkpoint is None else Path(checkpoint)
    with evaluation_mode(model.base), torch.enable_grad():  # whatever the caller has set
        run = _Run(model, Graph.of(data), config, train_mask, val_mask, loss, perturb)
        with run.passes.ready(), show_progress(progress, config, run.monitor.name) as report:
            return run.train(path, checkpoint_every, [report, *callbacks])


class _Run:
    """One run: what it is made of, and its loop."""

    def __init__(
        self,
        model: BufferedGNN,
        graph: Graph,
        config: FitConfig,
        train_mask: str | Tensor,
        val_mask: str | Tensor,
        loss: losses.LossFunction | None,
        perturb: Perturbation | None,
    ) -> None:
        self.model, self.graph, self.config = model, graph, config
        self.parameters = model.buffer_parameters()
        self.device = self.parameters[0].device
        self.teacher = self._teacher()
        self.train_nodes, self.val_nodes, self.labels = self._nodes_and_labels(train_mask, val_mask)
        outputs = self.teacher.size(1)
        self.task = self.labels.task if self.labels else infer_task(self.graph.data.get("y"), outputs, config.task)
        self.loss = losses.named(config.loss, detach_target=config.detach_target) if loss is None else loss
        self.passes = choose_passes(model, graph, config.accelerate)
        self.custom_perturbation = perturb
        self.monitor: Monitor = choose_monitor(self)
        self.generator = generator_on(self.device, config.seed)
        self.optimizer = torch.optim.Adam(self.parameters, lr=config.lr, fused=self._can_fuse())

    def _can_fuse(self) -> bool:
        return self.device.type in ("cpu", "cuda") and all(p.is_floating_point() for p in self.parameters)

    def perturbed(self, generator: torch.Generator) -> Any:
        """A fresh perturbed graph, to be handed to ``passes.run``."""
        if self.custom_perturbation is not None:
            return self.custom_perturbation(self.graph, generator)
        directions = self.config.directions
        mask = keep_mask(self.graph, self.config.drop_edge, generator, directions=directions)
        return self.passes.only(mask, directions)

    def outputs(self, clean: Tensor, perturbed: Tensor, nodes: Tensor) -> losses.StepOutputs:
        """What the loss is computed from, with the bias term on ``nodes``."""
        return losses.StepOutputs(self.teacher, clean, perturbed, nodes, self.labels, self.task)

    def train(self, path: Path | None, checkpoint_every: float, callbacks: list[Callback]) -> FitResult:
        """Epochs until the monitor stops improving; the best state is in the model afterwards, also after an error."""
        state = _State(best=[p.detach().clone() for p in self.parameters])
        identity = ""
        if path is not None:
            identity = self._identity()
            if not self._resume(path, identity, state):
                self._save(path, identity, state)  # a path that cannot be written to is refused here, not hours later
        if not state.history:
            state.best_score = self.monitor.score(self.passes.run(self.passes.whole).detach())[0]
        started = saved = time.monotonic()
        earlier = state.seconds
        stopped = self._finished(state)
        clean: Tensor | None = None
        try:
            while not stopped:
                record, clean = self._epoch(len(state.history) + 1, clean)
                self._note(record, state)
                state.seconds = earlier + time.monotonic() - started
                answers = [callback(record) for callback in callbacks]  # every callback hears of every epoch
                asked_to_stop = any(answer is True for answer in answers)
                stopped = self._finished(state) or ("callback" if asked_to_stop else "")
                if path is not None and (stopped or time.monotonic() - saved >= checkpoint_every):
                    self._save(path, identity, state)
                    saved = time.monotonic()
        finally:  # no checkpoint here: an interrupted epoch has moved the generator, and perhaps the parameters
            self._put(state.best)
        return FitResult(
            self.config, self.monitor.name, state.history, state.best_epoch, state.best_score, stopped, state.seconds
        )

    def _epoch(self, epoch: int, clean: Tensor | None) -> tuple[EpochRecord, Tensor | None]:
        """One step and its validation.

        Without dropout the clean pass of a step is the validation pass of the step before, so it is handed on.
        """
        view = self.perturbed(self.generator)
        with self.model.dropping(self.config.dropout, self.generator):
            clean = self.passes.run(self.passes.whole) if clean is None else clean
            perturbed = self.passes.run(view)
        terms = self.loss(self.outputs(clean, perturbed, self.train_nodes))
        total = terms.bias + self.config.strength * terms.robust
        if not math.isfinite(total.item()):
            raise ModelError(
                f"The loss became {total.item()} in epoch {epoch}; lower lr (now {self.config.lr}) or scale the "
                "features."
            )
        gradients = torch.autograd.grad(total, self.parameters, allow_unused=True, materialize_grads=True)
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.passes.parameters_changed()
        reusable = self.config.dropout == 0
        with torch.set_grad_enabled(reusable):
            after = self.passes.run(self.passes.whole)
        score, val_loss, val_accuracy = self.monitor.score(after.detach())
        record = EpochRecord(epoch, terms.bias.item(), terms.robust.item(), total.item(), val_loss, val_accuracy, score)
        return record, after if reusable else None

    def _note(self, record: EpochRecord, state: _State) -> None:
        state.history.append(record)
        if record.score < state.trained_score:
            state.trained_score, state.trained_epoch = record.score, record.epoch
        if record.score < state.best_score:
            state.best_score, state.best_epoch = record.score, record.epoch
            for best, parameter in zip(state.best, self.parameters, strict=True):
                best.copy_(parameter.detach())

    def _finished(self, state: _State) -> str:
        # Patience counts from the best trained epoch, not from the base: the first steps overshoot before they improve.
        if len(state.history) >= self.config.max_epochs:
            return "max_epochs"
        return "patience" if len(state.history) - state.trained_epoch >= self.config.patience else ""

    def _teacher(self) -> Tensor:
        if self.graph.x.size(1) != self.model.num_features:
            raise GraphError(
                f"The graph has {self.graph.x.size(1)} features per node, but the model was attached to one with "
                f"{self.model.num_features}; pass a graph with the same features."
            )
        try:
            with self.model.disabled(), torch.no_grad():
                teacher = self.model.run(self.graph.data)
        except AggBufferError:
            raise
        except Exception as error:
            raise explain_failure(error, self.graph) from error
        if not bool(torch.isfinite(teacher).all()):
            raise ModelError("The base model's outputs on this graph hold NaN or infinite values; check its weights.")
        return teacher

    def _nodes_and_labels(
        self, train_mask: str | Tensor, val_mask: str | Tensor
    ) -> tuple[Tensor, Tensor, Labels | None]:
        """Training nodes, validation nodes and checked labels; what is missing is filled in as ``fit`` says."""
        count, data = self.graph.num_nodes, self.graph.data
        train, val, y = select(data, train_mask, count), select(data, val_mask, count), data.get("y")
        for mask, usual, nodes in ((train_mask, "train_mask", train), (val_mask, "val_mask", val)):
            if nodes is None and mask is not None and mask != usual:
                raise GraphError(f"The graph has no {mask!r}; set data.{mask}, or name the {usual} that it has.")
        if self.config.loss == "cross_entropy" and (y is None or train is None or val is None):
            raise ConfigError("loss='cross_entropy' needs data.y, a train_mask and a val_mask; give all three.")
        labelled = y is not None and val is not None
        if train is not None and val is not None:
            refuse_overlap(train, val, ("train_mask", "val_mask"))
        if val is None:
            free = torch.ones(count, dtype=torch.bool)
            if train is not None and train.numel() < count:
                free[train.cpu()] = False
            candidates = free.nonzero().squeeze(-1)
            order = torch.randperm(candidates.numel(), generator=generator_on(torch.device("cpu"), self.config.seed))
            val = candidates[order[: max(1, round(_HELD_OUT * count))]].to(self.graph.x.device)
        if train is None:
            everyone = torch.ones(count, dtype=torch.bool, device=self.graph.x.device)
            everyone[val] = False
            train = everyone.nonzero().squeeze(-1)
            if train.numel() == 0:
                raise GraphError("The val_mask selects every node, which leaves none to train on; give a train_mask.")
        used = val if self.config.loss != "cross_entropy" else torch.cat([train, val])
        labels = Labels.of(y, count, self.teacher.size(1), used, self.config.task) if labelled else None
        return train, val, labels

    def _put(self, values: list[Tensor]) -> None:
        with torch.no_grad():
            for parameter, value in zip(self.parameters, values, strict=True):
                parameter.copy_(value)

    def _save(self, path: Path, identity: str, state: _State) -> None:
        tensors: dict[str, Tensor] = {f"current.{i}": p for i, p in enumerate(self.parameters)}
        tensors |= {f"best.{i}": b for i, b in enumerate(state.best)}
        tensors |= optimizer_tensors(self.optimizer) | {"generator": self.generator.get_state()}
        progress = {k: v for k, v in asdict(state).items() if k != "best"}
        Checkpoint(tensors, progress).write(path, identity)

    def _identity(self) -> str:
        settings = {"fit": self.config.to_dict(), "buffer": self.model.config.to_dict()}
        used = [self.train_nodes, self.val_nodes]
        if self.labels is not None:
            used.append(self.labels.values[torch.cat(used)])
        return run_identity(settings, fingerprint(self.model.base), self.graph, used)

    def _resume(self, path: Path, identity: str, state: _State) -> bool:
        found = Checkpoint.read(path, identity)
        if found is None:
            return False
        self._put([found.tensors[f"current.{i}"] for i in range(len(self.parameters))])
        for i, best in enumerate(state.best):
            best.copy_(found.tensors[f"best.{i}"])
        restore_optimizer(self.optimizer, found.tensors)
        self.generator.set_state(found.tensors["generator"])
        history = [EpochRecord(**record) for record in found.progress.pop("history")]
        for name, value in found.progress.items():
            setattr(state, name, value)
        state.history = history
        logger.info("going on after epoch %d from %s", len(history), path)
        return True
