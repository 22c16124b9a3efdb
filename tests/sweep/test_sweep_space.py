"""What may be searched, and how it is said."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from aggbuffer.errors import ConfigError
from aggbuffer.sweep import PAPER_SPACE, Range, Space
from helpers_fit import refused


def test_the_default_is_the_papers_space() -> None:
    space = Space.of(None)
    assert space.finite
    assert space.size == 48
    assert dict(space.settings) == dict(PAPER_SPACE)


def test_every_combination_has_a_number_of_its_own() -> None:
    space = Space.of({"strength": [1, 0.5], "dropout": [0, 0.2, 0.5]})
    found = [space.combination(i) for i in range(space.size)]
    expected = [
        {"strength": strength, "dropout": dropout} for strength, dropout in itertools.product([1, 0.5], [0, 0.2, 0.5])
    ]
    assert found == expected


def test_the_order_follows_the_seed_and_fewer_trials_are_its_start() -> None:
    space = Space.of(None)
    whole = space.points(None, seed=3)
    assert sorted(whole) == list(range(48))
    assert whole != sorted(whole)
    assert space.points(None, seed=3) == whole
    assert space.points(None, seed=4) != whole
    assert space.points(10, seed=3) == whole[:10]


def test_a_range_makes_the_space_infinite() -> None:
    space = Space.of({"lr": {"low": 1e-3, "high": 0.1, "log": True}, "patience": {"low": 5, "high": 9}})
    assert not space.finite
    assert space.settings == {"lr": Range(1e-3, 0.1, True), "patience": Range(5, 9)}
    assert space.points(4, seed=0) == [0, 1, 2, 3]


@pytest.mark.parametrize("suffix", ["json", "toml"])
def test_a_file_says_the_same_as_a_mapping(tmp_path: Path, suffix: str) -> None:
    wanted: dict[str, Any] = {
        "strength": [1.0, 0.5],
        "max_epochs": [30],
        "lr": {"low": 0.001, "high": 0.1, "log": True},
    }
    path = tmp_path / f"space.{suffix}"
    toml = "strength = [1, 0.5]\nmax_epochs = 30\nlr = {low = 0.001, high = 0.1, log = true}\n"
    path.write_text(toml if suffix == "toml" else json.dumps(wanted))
    assert Space.of(path).to_dict() == wanted
    assert Space.of(Space.of(path).to_dict()) == Space.of(path)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "is empty"),
        ({"strenght": [1]}, "no setting 'strenght'"),
        ({"drop_edge": [0.5, 1.5]}, "drop_edge must be in"),
        ({"dropout": []}, "no choices for 'dropout'"),
        ({"dropout": [0.5, 0.5]}, "0.5 twice"),
        ({"strength": [1, 1.0]}, "twice"),
        ({"strength": ["a lot"]}, "strength must be a number"),
        ({"strength": [None]}, "None for 'strength'"),
        ({"strength": [[1]]}, "expected numbers, words, true or false"),
        ({"monitor": ["val_loss", "val_accuracy"]}, "cannot be compared"),
        ({"lr": {"low": 0.1}}, "expected .*low.*high"),
        ({"lr": {"low": 0.1, "high": 0.01}}, "low must be below high"),
        ({"lr": {"low": 0.1, "high": 1, "step": 3}}, "no 'step'"),
        ({"lr": {"low": 0.1, "high": 1, "log": "yes"}}, "expected true or false"),
        ({"strength": {"low": 0, "high": 1, "log": True}}, "low must be above 0"),
        ({"dropout": {"low": 0, "high": 1}}, "dropout must be in"),
        ({"loss": {"low": 0, "high": 1}}, "loss must be one of"),
        ({"accelerate": {"low": False, "high": True}}, "no number"),
        ({"patience": [10.5]}, "whole number"),
        (17, "is a int"),
    ],
)
def test_what_cannot_be_searched_is_told_in_one_sentence(given: Any, told: str) -> None:
    with refused(told, ConfigError):
        Space.of(given)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("space.json", "{", "not valid JSON"),
        ("space.json", "[1, 2]", "is a list"),
        ("space.json", '{"lr": [1], "lr": [2]}', "'lr' is there twice"),
        ("space.toml", "lr = ", "not valid TOML"),
        ("space.yaml", "lr: 1", "no .json or .toml"),
    ],
)
def test_bad_files_are_told_in_one_sentence(tmp_path: Path, name: str, text: str, told: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError, match=told) as caught:
        Space.of(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        Space.of(tmp_path / "none.json")


def test_a_grid_beyond_reason_is_refused() -> None:
    hundred = [i / 100 for i in range(100)]
    space = Space.of({"drop_edge": hundred, "dropout": hundred, "strength": hundred, "patience": [1, 2]})
    with refused("2,000,000 combinations", ConfigError):
        space.points(10, seed=0)
