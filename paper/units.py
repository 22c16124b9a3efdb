"""Units of work: one method on one split of one graph, with whatever is changed in its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace

from paper.settings import BASE, BUFFER, BaseSettings, BufferSettings

Value = str | int | float | bool
Changes = tuple[tuple[str, Value], ...]
"""Sorted pairs: a field of ``BaseSettings``, ``buffer.<field>`` of ``BufferSettings``, or a method's own parameter."""

BUFFERS = "buffer."

# The paper's table of hyperparameters leaves out its two largest graphs; their table fixes these for all.
_UNLISTED = BaseSettings(hidden=256, lr=1e-3, weight_decay=0.0, dropout=0.5)
_UNLISTED_BUFFER = BufferSettings(strength=1.0, dropout=0.0, drop_edge=0.5)


@dataclass(frozen=True)
class Unit:
    """What is measured once and kept as one file.

    Attributes:
        dataset: The graph's name.
        method: The method's name.
        split: Which split; also the seed.
        changes: What differs from the paper's settings for this graph.
        search: Whether it belongs to a search, which sees validation nodes only.
    """

    dataset: str
    method: str
    split: int
    changes: Changes = ()
    search: bool = False

    @classmethod
    def of(
        cls, dataset: str, method: str, split: int, changes: Mapping[str, Value] | None = None, *, search: bool = False
    ) -> Unit:
        """A unit without changes that change nothing: two layers are no variant of a model that has two."""
        usual = {**asdict(usual_base(dataset)), **{BUFFERS + k: v for k, v in asdict(usual_buffer(dataset)).items()}}
        real = sorted((key, value) for key, value in (changes or {}).items() if usual.get(key) != value)
        return cls(dataset, method, split, tuple(real), search)

    @property
    def name(self) -> str:
        """Of the method and its variant, as a folder may be called."""
        told = ",".join(f"{key}={value}" for key, value in self.changes)
        return self.method.replace(" ", "-") + (f"@{told}" if told else "")

    def __str__(self) -> str:
        return f"{self.dataset} {self.name} split {self.split}"


@dataclass(frozen=True)
class Settings:
    """Everything that a method is told."""

    base: BaseSettings
    buffer: BufferSettings
    params: dict[str, Value]


def settings_of(dataset: str, changes: Mapping[str, Value]) -> Settings:
    """The paper's settings of a graph with changes applied; what neither dataclass knows goes to the method."""
    known = {field.name for field in fields(BaseSettings)}
    buffer = {key.removeprefix(BUFFERS): value for key, value in changes.items() if key.startswith(BUFFERS)}
    base = {key: value for key, value in changes.items() if key in known}
    params = {key: value for key, value in changes.items() if key not in known and not key.startswith(BUFFERS)}
    return Settings(
        replace(usual_base(dataset), **base),  # type: ignore[arg-type]
        replace(usual_buffer(dataset), **buffer),  # type: ignore[arg-type]
        params,
    )


def usual_base(dataset: str) -> BaseSettings:
    """The paper's base model of a graph."""
    return BASE.get(dataset, _UNLISTED)


def usual_buffer(dataset: str) -> BufferSettings:
    """The paper's buffer settings of a graph."""
    return BUFFER.get(dataset, _UNLISTED_BUFFER)
