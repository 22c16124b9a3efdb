"""Two evaluations side by side."""

from __future__ import annotations

import json
import math
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch_geometric.data import Data

from aggbuffer import Comparison, Evaluation, compare, evaluate
from aggbuffer.errors import ConfigError
from helpers_fit import base, buffered, community_graph, move, refused, targets_of

TASKS = ["multiclass", "multilabel", "binary", "regression"]


@pytest.fixture(scope="module", params=TASKS)
def pair(request: pytest.FixtureRequest) -> tuple[Evaluation, Evaluation]:
    data = community_graph()
    data.y = targets_of(request.param, data)
    gnn = base(task=request.param)
    with buffered(gnn, data) as model:
        move(model)
        return evaluate(gnn, data), evaluate(model, data)


@pytest.fixture(scope="module")
def comparison(pair: tuple[Evaluation, Evaluation]) -> Comparison:
    return compare(*pair, resamples=200)


def test_differences_are_those_of_the_scores(pair: tuple[Evaluation, Evaluation], comparison: Comparison) -> None:
    before, after = pair
    names = [name for name, score in before.rows() if score.count]
    assert [d.name for d in comparison.differences] == names
    for (name, was), (_, now) in zip(before.rows(), after.rows(), strict=True):
        if not was.count:
            continue
        d = comparison[name]
        assert (d.before, d.after) == (was, now)
        if before.task == "regression":
            assert math.isnan(d.macro_f1.difference)
            if was.deviation == 0 and "%" not in name:
                assert d.accuracy.difference == pytest.approx(was.rmse**2 - now.rmse**2, abs=1e-9)
        else:
            assert d.accuracy.difference == pytest.approx(now.accuracy - was.accuracy, abs=1e-12)
            assert d.macro_f1.difference == pytest.approx(now.macro_f1 - was.macro_f1, abs=1e-12)
        assert d.accuracy.low <= d.accuracy.difference + 1e-12
        assert d.accuracy.difference <= d.accuracy.high + 1e-12


def test_the_seed_decides_the_intervals_and_nothing_else_does(pair: tuple[Evaluation, Evaluation]) -> None:
    state = torch.get_rng_state()
    first = compare(*pair, resamples=100, seed=1).to_dict()
    assert compare(*pair, resamples=100, seed=1).to_dict() == first
    assert compare(*pair, resamples=100, seed=2).to_dict() != first
    assert torch.equal(torch.get_rng_state(), state)


def test_a_model_against_itself_gains_nothing(pair: tuple[Evaluation, Evaluation]) -> None:
    for d in compare(pair[0], pair[0], resamples=50).differences:
        assert (d.accuracy.difference, d.accuracy.low, d.accuracy.high) == (0, 0, 0)


def test_swapping_the_sides_flips_the_sign(pair: tuple[Evaluation, Evaluation]) -> None:
    there, back = compare(*pair, resamples=100), compare(pair[1], pair[0], resamples=100)
    for one, other in zip(there.differences, back.differences, strict=True):
        assert one.accuracy.difference == pytest.approx(-other.accuracy.difference)
        assert (one.accuracy.low, one.accuracy.high) == pytest.approx((-other.accuracy.high, -other.accuracy.low))


def test_a_higher_level_is_a_wider_interval(pair: tuple[Evaluation, Evaluation]) -> None:
    narrow, wide = (compare(*pair, resamples=200, level=level)["overall"].accuracy for level in (0.5, 0.99))
    assert wide.low <= narrow.low <= narrow.high <= wide.high


def test_a_comparison_is_json(comparison: Comparison) -> None:
    told = json.loads(json.dumps(comparison.to_dict(), allow_nan=False))
    assert told == comparison.to_dict()
    overall = next(d for d in told["differences"] if d["name"] == "overall")
    assert overall["accuracy"]["low"] == comparison["overall"].accuracy.low


def test_the_tables_hold_the_differences(comparison: Comparison) -> None:
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in comparison.to_markdown().splitlines()]
    header, rows = lines[0], lines[2:]
    assert "95 % interval" in header
    assert [row[0] for row in rows] == [d.name for d in comparison.differences]
    scale, digits = (1, 4) if comparison.task == "regression" else (100, 2)
    for row, d in zip(rows, comparison.differences, strict=True):
        low, high = row[4].split(" to ")
        told = [float(row[3]), float(low), float(high)]
        exact = [scale * value for value in (d.accuracy.difference, d.accuracy.low, d.accuracy.high)]
        assert told == pytest.approx(exact, abs=0.51 * 10**-digits)
        assert row[3][0] in "+-"
    html = ElementTree.fromstring(comparison._repr_html_())
    assert [["".join(cell.itertext()) for cell in row] for row in html.iter("tr")] == [header, *rows]
    assert str(comparison) == comparison.to_markdown()


def test_an_unknown_line_is_told_with_the_known_ones(comparison: Comparison) -> None:
    with pytest.raises(KeyError, match="'middle'; there are overall, head, tail"):
        comparison["middle"]


def test_close_shares_keep_their_own_scores() -> None:
    data = community_graph()
    found = evaluate(base(), data, keep=[0.9, 0.5, 0.501])
    names = [d.name for d in compare(found, found, resamples=10).differences][-3:]
    assert names == ["90 % of edges", "50 % of edges", "50.1 % of edges"]
    for name, score in found.rows():
        assert compare(found, found, resamples=10)[name].after == score


def _other_labels() -> Data:
    data = community_graph()
    data.y = (data.y + 1) % 3
    return data


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (community_graph(), {"mask": "val_mask"}),
        (community_graph(), {"keep": [1, 0.5]}),
        (community_graph(), {"keep": [1, 0.5, 0.75, 0.25, 0]}),
        (community_graph(), {"repeats": 2}),
        (community_graph(), {"seed": 1}),
        (_other_labels(), {}),
    ],
)
def test_evaluations_that_do_not_match_are_refused(data: Data, options: dict[str, Any]) -> None:
    before = evaluate(base(), community_graph())
    after = evaluate(base(), data, **options)
    for pair in ((before, after), (after, before)):
        with refused("The two evaluations differ in", ConfigError):
            compare(*pair)


def test_what_is_no_evaluation_or_no_level_is_refused() -> None:
    found = evaluate(base(), community_graph(), keep=())
    with refused("after is a dict; expected what aggbuffer.evaluate returns", ConfigError):
        compare(found, found.to_dict())  # type: ignore[arg-type]
    with refused("before is a NoneType", ConfigError):
        compare(None, found)  # type: ignore[arg-type]
    for level in (0, 1, 95, math.nan):
        with refused(r"level must be in \(0, 1\)", ConfigError):
            compare(found, found, level=level)
    with refused("resamples must be a whole number of at least 1", ConfigError):
        compare(found, found, resamples=0)
