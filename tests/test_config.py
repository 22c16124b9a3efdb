"""Settings: what is accepted, and what is refused in which words."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggbuffer import BufferConfig, FitConfig
from aggbuffer.errors import ConfigError
from helpers_fit import refused

OUT_OF_RANGE = {
    "drop_edge": [-0.01, 1.01, math.nan, math.inf, "0.5", None, True],
    "strength": [-1e-9, math.nan, math.inf, "1"],
    "dropout": [-0.1, 1.0, 1, math.nan, False],
    "lr": [0, 0.0, -1e-3, math.nan, math.inf],
    "patience": [0, -1, 1.5, 10.0, True, None],
    "max_epochs": [-1, 2.0, "10"],
    "seed": [-1, 0.5, None, 2**63],
    "monitor": ["accuracy", "", None, 1],
    "loss": ["RC", "kl", None],
    "task": ["classification", None],
    "directions": ["both", True],
    "detach_target": [1, "yes", None],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in OUT_OF_RANGE.items() for value in values]
)
def test_a_setting_out_of_range_is_named_with_its_value(name: str, value: object) -> None:
    with refused(rf"{name}\b", ConfigError):
        FitConfig(**{name: value})  # type: ignore[arg-type]
    with refused(rf"{name}\b", ConfigError):
        FitConfig().override(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"), [("site", "input"), ("block", "attention"), ("bias", 1), ("weighted_degree", None)]
)
def test_a_wrong_setting_of_the_block_is_named_with_its_value(name: str, value: object) -> None:
    with refused(rf"{name} must be .*got {value!r}", ConfigError):
        BufferConfig(**{name: value})  # type: ignore[arg-type]


def test_the_ends_of_every_range_are_legal() -> None:
    FitConfig(drop_edge=0, strength=0, dropout=0, max_epochs=0, patience=1, seed=2**63 - 1)
    FitConfig(drop_edge=1, strength=1e9, dropout=0.999, lr=1e-12)


@pytest.mark.parametrize("kind", [FitConfig, BufferConfig])
def test_unknown_settings_are_refused_and_the_known_ones_listed(kind: type[FitConfig] | type[BufferConfig]) -> None:
    with refused("no setting 'drop_edges'; its settings are .*", ConfigError):
        kind.from_dict({"drop_edges": 0.5})
    with refused("no setting 'drop_edges'; its settings are .*", ConfigError):
        kind().override(drop_edges=0.5)


def test_a_config_cannot_be_changed_in_place() -> None:
    with pytest.raises(AttributeError):
        FitConfig().lr = 1.0  # type: ignore[misc]


@settings(max_examples=50, deadline=None)
@given(
    st.builds(
        FitConfig,
        drop_edge=st.floats(0, 1),
        strength=st.floats(0, 1e300),
        dropout=st.floats(0, 1, exclude_max=True),
        lr=st.floats(0, 1e300, exclude_min=True),
        patience=st.integers(1, 10**9),
        max_epochs=st.integers(0, 10**9),
        seed=st.integers(0, 2**63 - 1),
        monitor=st.sampled_from(["val_loss", "val_accuracy", "rc_loss"]),
        loss=st.sampled_from(["rc", "rc_train", "cross_entropy", "pseudo_label", "self_distillation"]),
        task=st.sampled_from(["auto", "multiclass", "multilabel", "regression"]),
        directions=st.sampled_from(["together", "independent"]),
        detach_target=st.booleans(),
    )
)
def test_settings_survive_json(config: FitConfig) -> None:
    assert FitConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_overriding_nothing_changes_nothing_and_something_only_that() -> None:
    config = FitConfig(drop_edge=0.2, seed=4)
    assert config.override() == config
    assert config.override(seed=5).to_dict() == {**config.to_dict(), "seed": 5}
