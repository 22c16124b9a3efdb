"""Settings of the block and of its training: frozen, validated, and refusing what they do not know."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, Self, cast, get_args

from aggbuffer.errors import ConfigError

Site = Literal["aggregation", "output"]
Block = Literal["agg_b", "single", "jknet", "residual", "agg"]
Monitor = Literal["val_loss", "val_accuracy", "rc_loss"]
Directions = Literal["together", "independent"]
SelfLoops = Literal["auto", "kept", "redrawn"]
Loss = Literal["rc", "rc_train", "cross_entropy", "pseudo_label", "self_distillation"]
TaskName = Literal["auto", "multiclass", "multilabel", "regression"]


class _Config:
    """What both configurations share: strict construction from, and conversion to, plain dictionaries."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build from a mapping; an unknown key is an error that names the nearest known ones."""
        known = [f.name for f in fields(cls)]  # type: ignore[arg-type]
        for key in values:
            if key not in known:
                raise ConfigError(f"{cls.__name__} has no setting {key!r}; its settings are {', '.join(known)}.")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON-ready values."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    def override(self, **changes: Any) -> Self:
        """A copy with some settings changed, validated like a new one."""
        known = {f.name for f in fields(self)}  # type: ignore[arg-type]
        if unknown := sorted(set(changes) - known):
            raise ConfigError(
                f"{type(self).__name__} has no setting {unknown[0]!r}; its settings are {', '.join(sorted(known))}."
            )
        return replace(self, **changes)  # type: ignore[type-var]


@dataclass(frozen=True)
class BufferConfig(_Config):
    """Where and how the buffer acts.

    Attributes:
        site: ``"aggregation"`` adds the term to the aggregation itself, which for GIN-like layers is before
            their MLP and for K-hop layers at each hop; ``"output"`` adds it once to the layer's output.
        block: ``"agg_b"`` is the paper's block. The others are its ablations: ``"single"`` reads only the
            last representation, ``"jknet"`` drops the degree, ``"residual"`` drops both, ``"agg"`` is the layer's own
            aggregation of the last representation with a new weight (GCN layers only).
        bias: Adds a bias inside the degree normalisation, as the authors' code does.
        weighted_degree: Sum edge weights instead of counting edges in D.
    """

    site: Site = "aggregation"
    block: Block = "agg_b"
    bias: bool = False
    weighted_degree: bool = False

    def __post_init__(self) -> None:
        check_choice("site", self.site, get_args(Site))
        check_choice("block", self.block, get_args(Block))
        _flag("bias", self.bias)
        _flag("weighted_degree", self.weighted_degree)


@dataclass(frozen=True)
class BatchConfig(_Config):
    """How mini-batches are made.

    Attributes:
        seeds: How many nodes the loss of a step is computed on, over all processes.
        parts: Into how many parts the seeds of a step are divided, which are computed one after the other or by several
            processes, with the same result where there are no more processes than parts. More parts take less memory.
        fanout: How many in-edges of a node are sampled, the same at every hop; None for all of them.
        clusters: Cut the graph into so many parts, and take unions of parts in place of sampled neighbourhoods.
        steps_per_epoch: Steps between two validations; None for one pass over all nodes.
        prefetch: How many batches are sampled ahead, in a thread of their own; results do not depend on it.
        memory: Bytes that validation, layer by layer, may take beyond the graph.
    """

    seeds: int = 1024
    parts: int = 4
    fanout: int | None = None
    clusters: int | None = None
    steps_per_epoch: int | None = None
    prefetch: int = 1
    memory: int = 2**30

    def __post_init__(self) -> None:
        check_integer("seeds", self.seeds, 1)
        check_integer("parts", self.parts, 1)
        if isinstance(self.fanout, tuple | list):
            raise ConfigError(
                f"fanout must be one number or None (got {self.fanout!r}); a node has one sample at whatever hop it "
                "is met, so that no result depends on how seeds are divided."
            )
        for name in ("fanout", "clusters", "steps_per_epoch"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), 1)
        check_integer("prefetch", self.prefetch, 0)
        check_integer("memory", self.memory, 1)
        if self.clusters is not None and self.fanout is not None:
            raise ConfigError("clusters takes all edges inside a union of parts, so fanout has no meaning; give one.")


@dataclass(frozen=True)
class FitConfig(_Config):
    """How the buffer is trained.

    Attributes:
        drop_edge: Share p of edges that each step's perturbed graph loses, in [0, 1].
        strength: The weight λ of the robustness term.
        dropout: Dropout on the input of every layer but the first while the buffer trains, in [0, 1).
        lr: Adam's learning rate.
        patience: Epochs without improvement of the monitor before training stops.
        max_epochs: The most epochs.
        monitor: ``"val_loss"``, ``"val_accuracy"``, or ``"rc_loss"``, which needs no labels.
        seed: Everything random in a fit follows from it.
        loss: ``"rc"`` is the paper's; the others are its ablations.
        task: ``"auto"`` reads it off the labels.
        directions: Whether both directions of an undirected edge are dropped ``"together"``.
        self_loops: ``"redrawn"`` weighs self-loops more in the perturbed graph, so that the loss also pulls towards a
            node's own features: each weighs 1 with probability p and 2 otherwise, and every degree counts it so
            (layers that add self-loops themselves: GCN and SGC). ``"kept"`` leaves them alone, as in the paper.
            ``"auto"`` tries both for some fifty steps and goes on with the one that scores better on validation nodes.
            It keeps them where layers have none to weigh, without labels, and with a perturbation of your own.
        accelerate: Take the fast path where model and graph allow it; its results differ from the plain path's by
            rounding only.
        detach_target: Stop gradients through the clean side of the robustness term.
        batch: Train on mini-batches of this kind; None for the whole graph in every step.
    """

    drop_edge: float = 0.5
    strength: float = 0.5
    dropout: float = 0.0
    lr: float = 1e-2
    patience: int = 100
    max_epochs: int = 2000
    monitor: Monitor = "val_loss"
    seed: int = 0
    loss: Loss = "rc"
    task: TaskName = "auto"
    directions: Directions = "together"
    self_loops: SelfLoops = "auto"
    detach_target: bool = False
    accelerate: bool = True
    batch: BatchConfig | None = None

    def __post_init__(self) -> None:
        if isinstance(self.batch, Mapping):  # as ``to_dict`` writes it
            object.__setattr__(self, "batch", BatchConfig.from_dict(self.batch))
        if self.batch is not None and not isinstance(self.batch, BatchConfig):
            raise ConfigError(f"batch must be a BatchConfig or None (got {self.batch!r}).")
        for name in ("drop_edge", "strength", "dropout", "lr", "patience", "max_epochs", "seed"):
            value = getattr(self, name)
            if isinstance(value, numbers.Number) and hasattr(value, "item"):  # a numpy scalar, which JSON does not know
                object.__setattr__(self, name, cast(Any, value).item())
        check_number("drop_edge", self.drop_edge, 0, 1)
        check_number("strength", self.strength, 0, math.inf)
        check_number("dropout", self.dropout, 0, 1, open_right=True)
        check_number("lr", self.lr, 0, math.inf, open_left=True)
        check_integer("patience", self.patience, 1)
        check_integer("max_epochs", self.max_epochs, 0)
        check_integer("seed", self.seed, 0)
        if self.seed >= 2**63:
            raise ConfigError(f"seed must be below 2**63 (got {self.seed}).")
        check_choice("monitor", self.monitor, get_args(Monitor))
        check_choice("loss", self.loss, get_args(Loss))
        check_choice("task", self.task, get_args(TaskName))
        check_choice("directions", self.directions, get_args(Directions))
        check_choice("self_loops", self.self_loops, get_args(SelfLoops))
        _flag("detach_target", self.detach_target)
        _flag("accelerate", self.accelerate)


def check_choice(name: str, value: object, allowed: Iterable[str]) -> None:
    """Refuse what is not among ``allowed``."""
    if value not in (options := list(allowed)):
        raise ConfigError(f"{name} must be one of {', '.join(map(repr, options))} (got {value!r}).")


def _flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False (got {value!r}).")


def check_number(
    name: str, value: object, low: float, high: float, *, open_left: bool = False, open_right: bool = False
) -> None:
    """Refuse what is no number between ``low`` and ``high``; infinity is never inside."""
    interval = f"{'(' if open_left else '['}{low}, {high}{')' if open_right or high == math.inf else ']'}"
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or math.isnan(value):
        raise ConfigError(f"{name} must be a number in {interval} (got {value!r}).")
    value = float(value)
    too_low = value <= low if open_left else value < low
    too_high = value >= high if open_right or high == math.inf else value > high
    if too_low or too_high:
        raise ConfigError(f"{name} must be in {interval} (got {value!r}).")


def check_integer(name: str, value: object, low: int) -> None:
    """Refuse what is no whole number of at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < low:
        raise ConfigError(f"{name} must be a whole number of at least {low} (got {value!r}).")


PathLike = str | Path
