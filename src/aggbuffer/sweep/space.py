"""What a search tries: for each setting of ``FitConfig`` a list of choices, or a range."""

from __future__ import annotations

import json
import math
import random
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from aggbuffer.config import FitConfig, PathLike
from aggbuffer.errors import ConfigError

# What the paper searched for every graph: 48 combinations.
PAPER_SPACE: Mapping[str, tuple[float, ...]] = {
    "strength": (1.0, 0.5, 0.1),
    "drop_edge": (0.2, 0.5, 0.7, 1.0),
    "dropout": (0.0, 0.2, 0.5, 0.7),
}

_NOT_COMPARABLE = ("monitor", "task")  # trials that differ in these have scores of different kinds
_MOST_COMBINATIONS = 1_000_000


@dataclass(frozen=True)
class Range:
    """All numbers of an interval.

    Attributes:
        low: Its lower end, included.
        high: Its upper end, included.
        log: Whether to draw evenly in the logarithm.
    """

    low: float
    high: float
    log: bool = False

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are meant."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def to_dict(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high, "log": self.log}


@dataclass(frozen=True)
class Space:
    """A checked space.

    Attributes:
        settings: Each searched setting's choices, or its range.
    """

    settings: Mapping[str, tuple[Any, ...] | Range]

    @classmethod
    def of(cls, given: Space | Mapping[str, Any] | PathLike | None) -> Self:
        """A space from a mapping, a JSON or TOML file, or nothing, which means the paper's.

        Raises:
            ConfigError: If a setting is unknown, or a choice outside what it may be.
        """
        if isinstance(given, Space):
            return cls(given.settings)
        if isinstance(given, str | Path):
            given = read_space(given)
        given = PAPER_SPACE if given is None else given
        if not isinstance(given, Mapping) or not given:
            raise ConfigError(
                f"The space is {_told(given)}; expected settings of FitConfig, each with a list of choices or "
                '{"low": ..., "high": ...}.'
            )
        return cls({str(name): _checked(str(name), value) for name, value in given.items()})

    @property
    def finite(self) -> bool:
        """Whether it is a grid, every combination of which can be tried."""
        return not any(isinstance(values, Range) for values in self.settings.values())

    @property
    def size(self) -> int:
        """How many combinations a grid has."""
        return math.prod(len(values) for values in self.settings.values() if not isinstance(values, Range))

    def combination(self, index: int) -> dict[str, Any]:
        """One combination of a grid, counted from 0; the last setting changes first."""
        found = {}
        for name, values in reversed(list(self.settings.items())):
            assert not isinstance(values, Range)
            index, at = divmod(index, len(values))
            found[name] = values[at]
        return {name: found[name] for name in self.settings}

    def points(self, trials: int | None, seed: int) -> list[int]:
        """What is to be tried, in the order in which to try it.

        For a grid these are numbers of combinations, shuffled, so that the first few already speak for all; else they
        only count.
        """
        if not self.finite:
            return list(range(trials or 0))
        if self.size > _MOST_COMBINATIONS:
            raise ConfigError(
                f"The space has {self.size:,} combinations, more than {_MOST_COMBINATIONS:,}; give ranges "
                '({"low": ..., "high": ...}) instead of lists.'
            )
        order = list(range(self.size))
        random.Random(seed).shuffle(order)
        return order[:trials]

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-ready values."""
        return {
            name: values.to_dict() if isinstance(values, Range) else list(values)
            for name, values in self.settings.items()
        }


def read_space(path: PathLike) -> dict[str, Any]:
    """A space from a ``.json`` or ``.toml`` file, not yet checked.

    Raises:
        ConfigError: If the file is missing, of another kind, or damaged.
    """
    path = Path(path)
    if path.suffix not in (".json", ".toml"):
        raise ConfigError(f"The space {path} is no .json or .toml file; name one of these.")
    try:
        text = path.read_text(encoding="utf-8")
        found = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text, object_pairs_hook=_each_once)
    except OSError as error:
        raise ConfigError(f"The space {path} cannot be read ({error.strerror or error}).") from error
    except ValueError as error:  # both kinds of file, and text that is not UTF-8
        raise ConfigError(f"The space {path} is not valid {path.suffix[1:].upper()} ({error}).") from error
    if not isinstance(found, dict):
        raise ConfigError(f"The space {path} is {_told(found)}; expected an object of settings and their choices.")
    return found


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name!r} is there twice")
    return dict(pairs)


def _checked(name: str, value: Any) -> tuple[Any, ...] | Range:
    if name in _NOT_COMPARABLE:
        raise ConfigError(f"The space has {name!r}, but trials that differ in it cannot be compared; fix it instead.")
    if isinstance(value, Range):
        value = value.to_dict()
    if isinstance(value, Mapping):
        return _checked_range(name, value)
    choices = list(value) if isinstance(value, list | tuple) else [value]
    if not choices:
        raise ConfigError(f"The space has no choices for {name!r}; list at least one.")
    checked = tuple(_setting(name, choice) for choice in choices)
    for choice in checked:
        if checked.count(choice) > 1:
            raise ConfigError(f"The space lists {choice!r} twice for {name!r}; list every choice once.")
    return checked


def _checked_range(name: str, value: Mapping[str, Any]) -> Range:
    if unknown := sorted(set(value) - {"low", "high", "log"}):
        raise ConfigError(f"The range of {name!r} has no {unknown[0]!r}; it takes low, high and log.")
    if not {"low", "high"} <= set(value):
        raise ConfigError(f'The range of {name!r} is {dict(value)!r}; expected {{"low": ..., "high": ...}}.')
    low, high, log = _setting(name, value["low"]), _setting(name, value["high"]), value.get("log", False)
    if isinstance(low, bool | str):
        raise ConfigError(f"{name!r} is no number, so it has no range; list its choices.")
    if not isinstance(log, bool):
        raise ConfigError(f"The range of {name!r} has log={log!r}; expected true or false.")
    if low >= high:
        raise ConfigError(f"The range of {name!r} goes from {low} to {high}; low must be below high.")
    if log and low <= 0:
        raise ConfigError(f"The range of {name!r} is logarithmic and starts at {low}; low must be above 0.")
    return Range(low, high, log)


def _setting(name: str, value: Any) -> Any:
    """One value of one setting, checked by the configuration itself, as the type it has there."""
    if not isinstance(value, bool | int | float | str):
        raise ConfigError(f"The space has {value!r} for {name!r}; expected numbers, words, true or false.")
    try:
        FitConfig.from_dict({name: value})
    except ConfigError as error:
        raise ConfigError(f"The space does not fit: {error}") from None
    return float(value) if isinstance(getattr(FitConfig, name), float) else value


def _told(value: object) -> str:
    return "empty" if isinstance(value, Mapping) else f"a {type(value).__name__}"
