"""The training loop behind ``fit``."""

from __future__ import annotations

import logging
import math
import textwrap
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from aggbuffer import losses
from aggbuffer.callbacks import Callback, Callbacks, RunInfo
from aggbuffer.checkpoint import Checkpoint, optimizer_tensors, restore_optimizer, run_identity
from aggbuffer.config import FitConfig
from aggbuffer.errors import AggBufferError, ConfigError, GraphError, ModelError
from aggbuffer.graph import Graph
from aggbuffer.io import fingerprint
from aggbuffer.layers import explain_failure
from aggbuffer.model import BufferedGNN
from aggbuffer.monitors import Monitor, choose_monitor
from aggbuffer.passes import PlainPasses, choose_passes, weighs_loops
from aggbuffer.perturb import generator_on, keep_mask, redrawn_loops
from aggbuffer.result import EpochRecord, FitResult
from aggbuffer.supervision import Supervision

logger = logging.getLogger("aggbuffer")

_TRIED_STEPS = 50  # of each way to treat self-loops; on six graphs that told nearly always which ends better

Perturbation = Callable[[Graph, torch.Generator], Data]


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
    self_loops: str = ""  # what "auto" has been decided to be


class Training:
    """One run: what it is made of, and its loop."""

    _steps_an_epoch = 1

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
        self._begin(model, config, loss, perturb)
        self.graph = graph
        self._check_width()
        try:
            self.passes = choose_passes(model, graph, config.accelerate)
            self.config = possible(config, weighs_loops(model))
            if self.config.self_loops != "kept" and not self.passes.weighs_loops:
                self.passes = PlainPasses(model, graph)
            self.teacher = self._teacher()
        except AggBufferError:
            raise
        except Exception as error:
            raise explain_failure(error, graph, model.base) from error
        self.supervision = Supervision.of(
            graph.data, graph.num_nodes, graph.x.device, self.teacher.size(1), config, train_mask, val_mask
        )
        self.monitor: Monitor = choose_monitor(self)
        self._keep_loops_unless_told()

    def _begin(
        self,
        model: BufferedGNN,
        config: FitConfig,
        loss: losses.LossFunction | None,
        perturb: Perturbation | None,
    ) -> None:
        """What every run has, whatever its epochs are made of."""
        self.model, self.config = model, config
        self.parameters = model.buffer_parameters()
        self.device = self.parameters[0].device
        self.loss = losses.named(config.loss, detach_target=config.detach_target) if loss is None else loss
        self.custom_perturbation = perturb
        self.generator = generator_on(self.device, config.seed)
        self.optimizer = torch.optim.Adam(self.parameters, lr=config.lr, fused=self._can_fuse())

    @property
    def size(self) -> dict[str, int]:
        """How many nodes, edges and features the graph has."""
        graph = self.graph
        return {"nodes": graph.num_nodes, "edges": graph.num_edges, "features": graph.x.size(1)}

    def _keep_loops_unless_told(self) -> None:
        """Without labels, each way of perturbing would be judged by a loss of its own."""
        own = self.custom_perturbation is not None
        no_choice = self.monitor.name == "rc_loss" or own or self.config.max_epochs == 0
        if self.config.self_loops == "auto" and no_choice:
            self.config = self.config.override(self_loops="kept")

    def _can_fuse(self) -> bool:
        return self.device.type in ("cpu", "cuda") and all(p.is_floating_point() for p in self.parameters)

    def perturbed(self, generator: torch.Generator) -> Any:
        """A fresh perturbed graph, to be handed to ``passes.run``."""
        if self.custom_perturbation is not None:
            data = self.custom_perturbation(self.graph, generator)
            if not isinstance(data, Data):
                raise ConfigError(f"perturb returned a {type(data).__name__}; expected a Data over the same nodes.")
            _check_same_nodes(data.get("x"), self.graph.x)
            return data
        directions, share = self.config.directions, self.config.drop_edge
        mask = keep_mask(self.graph, share, generator, directions=directions)
        loops = None
        if self.config.self_loops == "redrawn":
            loops = redrawn_loops(self.graph, share, generator)
        return self.passes.only(mask, directions, loops)

    def outputs(self, clean: Tensor, perturbed: Tensor, nodes: Tensor) -> losses.StepOutputs:
        """What the loss is computed from, with the bias term on ``nodes``."""
        labels, task = self.supervision.labels, self.supervision.task
        return losses.StepOutputs(self.teacher, clean, perturbed, nodes, labels, task)

    def run(self, path: Path | None, checkpoint_every: float, callbacks: list[Callback]) -> FitResult:
        """Epochs until the monitor stops improving; the best state is in the model afterwards, also after an error."""
        state = _State(best=[p.detach().clone() for p in self.parameters])
        identity = ""
        if path is not None:
            identity = self._identity()
            if not self._resume(path, identity, state):
                self._save(path, identity, state)  # a path that cannot be written to is refused here, not hours later
        if not state.history:
            state.best_score = self._first_score()
        earlier = state.seconds
        stopped = self._finished(state)
        clean: Tensor | None = None
        heard = Callbacks(callbacks)
        try:
            started = saved = time.monotonic()
            if self.config.self_loops == "auto":
                self._try_loops(state)
                if path is not None:
                    self._save(path, identity, state)
            heard.start(RunInfo.of(self, state.history))
            while not stopped:
                record, clean = self._epoch(len(state.history) + 1, clean)
                self._note(record, state)
                state.seconds = earlier + time.monotonic() - started
                try:
                    asked_to_stop = self._agreed(heard.epoch(record))
                except BaseException:
                    if path is not None:  # between two epochs all is whole
                        self._save(path, identity, state)
                    raise
                stopped = self._finished(state) or ("callback" if asked_to_stop else "")
                if path is not None and (stopped or time.monotonic() - saved >= checkpoint_every):
                    self._save(path, identity, state)
                    saved = time.monotonic()
        except BaseException as error:
            stopped = "interrupted" if isinstance(error, KeyboardInterrupt) else "error"
            raise
        finally:  # no checkpoint here: an epoch cut short has moved the generator, and perhaps the parameters
            self._put(state.best)
            result = self._result(state, stopped)
            heard.end(result)
        return result

    def _try_loops(self, state: _State) -> None:
        """Decide what becomes of self-loops by a few epochs of each way, after which the run begins."""
        begin, scores = self._checkpoint(state), dict[str, float]()
        logger.info("Trying self-loops kept and redrawn, some %d steps of each.", _TRIED_STEPS)
        for kind in ("kept", "redrawn"):
            self.config, clean = self.config.override(self_loops=kind), None
            while not self._finished(state) and len(state.history) * self._steps_an_epoch < _TRIED_STEPS:
                record, clean = self._epoch(len(state.history) + 1, clean)
                self._note(record, state)
            scores[kind] = state.trained_score
            self._go_to(begin, state)
        state.self_loops = min(scores, key=scores.__getitem__)  # kept, if it makes no difference
        self.config = self.config.override(self_loops=state.self_loops)
        best, other = sorted(scores.values())
        left_out = next(kind for kind in scores if kind != state.self_loops)
        # A score is lower where it is better, so an accuracy is told by its size.
        told = (state.self_loops, self.monitor.name, abs(best), left_out, abs(other))
        logger.info("Self-loops %s: %s %.4f, %s %.4f.", *told)

    def _result(self, state: _State, stopped: str) -> FitResult:
        return FitResult(
            self.config, self.monitor.name, state.history, state.best_epoch, state.best_score, stopped, state.seconds
        )

    def _first_score(self) -> float:
        """What the monitor says of the untouched base."""
        with self.passes.ready():
            return self.monitor.score(self.passes.run(self.passes.whole).detach())[0]

    def _agreed(self, stop: bool) -> bool:
        """Whether the run stops as a callback has asked."""
        return stop

    def _epoch(self, epoch: int, clean: Tensor | None) -> tuple[EpochRecord, Tensor | None]:
        """One step and its validation.

        Without dropout the clean pass of a step is the validation pass of the step before, so it is handed on.
        """
        with self.passes.ready():  # callbacks see the model as it is
            return self._step(epoch, clean)

    def _step(self, epoch: int, clean: Tensor | None) -> tuple[EpochRecord, Tensor | None]:
        view = self.perturbed(self.generator)
        with self.model.dropping(self.config.dropout, self.generator):
            clean = self.passes.run(self.passes.whole) if clean is None else clean
            perturbed = self.passes.run(view)
        terms = self.loss(self.outputs(clean, perturbed, self.supervision.train))
        if not isinstance(terms, losses.LossTerms):
            raise ConfigError(f"loss returned a {type(terms).__name__}; expected LossTerms(bias, robust).")
        total = terms.bias + self.config.strength * terms.robust
        self._check_finite(total.item(), epoch)
        self._move(self._gradients(total))
        self.passes.parameters_changed()
        reusable = self.config.dropout == 0
        with torch.set_grad_enabled(reusable):
            after = self.passes.run(self.passes.whole)
        score, val_loss, val_accuracy = self.monitor.score(after.detach())
        record = EpochRecord(epoch, terms.bias.item(), terms.robust.item(), total.item(), val_loss, val_accuracy, score)
        return record, after if reusable else None

    def _check_finite(self, loss: float, epoch: int) -> None:
        if not math.isfinite(loss):
            raise ModelError(
                f"The loss became {loss} in epoch {epoch}; lower lr (now {self.config.lr}) or scale the features."
            )

    def _move(self, gradients: Iterable[Tensor]) -> None:
        """One step of the optimiser."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def _gradients(self, total: Tensor) -> tuple[Tensor, ...]:
        try:
            return torch.autograd.grad(total, self.parameters, allow_unused=True, materialize_grads=True)
        except RuntimeError as error:  # a model that runs its layers again during the backward pass, for one
            reason = textwrap.shorten(f"{type(error).__name__}: {error}", 90, placeholder=" …")
            raise ModelError(
                f"The model's gradients could not be computed ({reason}); if it uses torch.utils.checkpoint, switch "
                "that off, as a buffer needs every layer to run once."
            ) from error

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

    def _check_width(self) -> None:
        if self.graph.x.size(1) != self.model.num_features:
            raise GraphError(
                f"The graph has {self.graph.x.size(1)} features per node, but the model was attached to one with "
                f"{self.model.num_features}; pass a graph with the same features."
            )

    def _teacher(self) -> Tensor:
        """Logits of the base, ``[N, C]``, by the very path of the passes, so that a zero buffer has a zero bias."""
        with self.passes.ready(), self.model.disabled(), torch.no_grad():
            teacher = self.passes.run(self.passes.whole)
        if not bool(torch.isfinite(teacher).all()):
            raise ModelError("The base model's outputs on this graph hold NaN or infinite values; check its weights.")
        return teacher

    def _put(self, values: list[Tensor]) -> None:
        with torch.no_grad():
            for parameter, value in zip(self.parameters, values, strict=True):
                parameter.copy_(value)
        self._parameters_changed()

    def _parameters_changed(self) -> None:
        self.passes.parameters_changed()

    def _save(self, path: Path, identity: str, state: _State) -> None:
        self._checkpoint(state).write(path, identity)

    def _checkpoint(self, state: _State) -> Checkpoint:
        """Where the run stands between two epochs."""
        tensors: dict[str, Tensor] = {f"current.{i}": p for i, p in enumerate(self.parameters)}
        tensors |= {f"best.{i}": b for i, b in enumerate(state.best)}
        tensors |= optimizer_tensors(self.optimizer) | {"generator": self.generator.get_state()}
        progress = {k: v for k, v in asdict(state).items() if k != "best"}
        return Checkpoint({name: tensor.detach().clone() for name, tensor in tensors.items()}, progress)

    def _identity(self) -> str:
        return run_identity(self._settings(), fingerprint(self.model.base), self.graph, self._used())

    def _settings(self) -> dict[str, Any]:
        """What decides how a run goes, beside tensors."""
        # A function cannot be compared, but its name can.
        functions = [self.loss, self.custom_perturbation, self.model.forward_call]
        names = [getattr(function, "__qualname__", type(function).__name__) for function in functions]
        fit = {name: value for name, value in self.config.to_dict().items() if name != "batch"}
        return {"fit": fit, "buffer": self.model.config.to_dict(), "functions": names}

    def _used(self) -> list[Tensor]:
        """Training and validation nodes, and their labels."""
        seen = self.supervision
        used = [seen.train, seen.val]
        if seen.labels is not None:
            used.append(seen.labels.values[torch.cat(used)])
        return used

    def _resume(self, path: Path, identity: str, state: _State) -> bool:
        found = Checkpoint.read(path, identity)
        if found is None:
            return False
        self._go_to(found, state)
        if state.self_loops:
            self.config = self.config.override(self_loops=state.self_loops)
        logger.info("going on after epoch %d from %s", len(state.history), path)
        return True

    def _go_to(self, found: Checkpoint, state: _State) -> None:
        self._put([found.tensors[f"current.{i}"] for i in range(len(self.parameters))])
        for i, best in enumerate(state.best):
            best.copy_(found.tensors[f"best.{i}"])
        restore_optimizer(self.optimizer, found.tensors)
        self.generator.set_state(found.tensors["generator"])
        for name, value in found.progress.items():
            setattr(state, name, value)
        state.history = [EpochRecord(**record) for record in found.progress["history"]]


def possible(config: FitConfig, weighs: bool, how: str = "") -> FitConfig:
    """The settings without what cannot be done with self-loops.

    Args:
        config: As the user has given them.
        weighs: Whether passes can change what the self-loops weigh.
        how: What they need for that, beside layers that add them.
    """
    if weighs:
        return config
    if config.self_loops == "redrawn":
        raise ConfigError(
            "self_loops='redrawn' needs a model whose layers all add self-loops themselves (GCNConv, SGConv with "
            f"add_self_loops=True){how}; use self_loops='auto' or 'kept'."
        )
    return config.override(self_loops="kept")


def _check_same_nodes(x: object, expected: Tensor) -> None:
    found = list(x.shape) if isinstance(x, Tensor) else f"a {type(x).__name__}"
    if found != list(expected.shape):
        raise ConfigError(
            f"perturb returned a Data whose x is {found}; expected the features of the same nodes, "
            f"{list(expected.shape)}."
        )
