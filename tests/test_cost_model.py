"""The cost model finds the weights that numbers were made with, and what follows from them is in proportion."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks import cost_model, scale_growth
from benchmarks.cost_model import (
    HUNDRED_BILLION,
    PAPERS100M,
    TERMS,
    Cluster,
    Curve,
    Sizes,
    estimate,
    judge,
    own_memory,
    table,
)

SIZES = [Sizes(edges // 20, edges, 64, 64, 16) for edges in (10**5, 3 * 10**5, 10**6, 3 * 10**6, 10**7, 10**8)]
WEIGHTS = (0.02, 3e-9, 1e-9)


def points(noise: float = 0.0) -> list[dict[str, Any]]:
    """Graphs whose costs are sums of the terms, and off by the noise in turn."""
    return [
        {"sizes": asdict(sizes), "costs": {n: Curve(n, WEIGHTS)(sizes) * (1 + noise * (-1) ** i) for n in TERMS}}
        for i, sizes in enumerate(SIZES)
    ]


@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_the_largest_graph_is_predicted_from_the_others(noise: float) -> None:
    judged = judge(points(noise))
    assert {j.name for j in judged} == set(TERMS)
    for j in judged:
        assert j.edges == 10**8
        assert abs(j.error) < 1e-6 if noise == 0 else abs(j.error) < 0.2
        assert all(weight >= 0 for weight in j.curve.weights)


def test_a_cost_that_grows_otherwise_is_predicted_badly() -> None:
    squared = [{"sizes": p["sizes"], "costs": dict.fromkeys(TERMS, 1e-09 * p["sizes"]["edges"] ** 2)} for p in points()]
    assert all(abs(j.error) > 0.5 for j in judge(squared))


def test_sampled_neighbourhoods_have_the_sizes_that_counting_gives() -> None:
    large = Sizes(10**9, 20 * 10**9, 64, 64, 16, seeds=1000, fanout=10)
    nodes, edges = large.sampled()
    assert edges == pytest.approx(1000 * 10 + 1000 * 10 * 10, rel=1e-3)  # nobody is drawn twice
    assert nodes == pytest.approx(1000 + edges, rel=1e-3)
    small = replace(large, nodes=2000, edges=40_000)
    assert small.sampled()[0] <= 2000
    assert small.sampled(10)[0] < small.sampled(1000)[0]
    assert Sizes(100, 500, 7, 8, 3).parameters == 7 * 8 + (7 + 8) * 3


def test_what_a_fit_takes_is_in_proportion() -> None:
    curves = {j.name: j.curve for j in judge(points())}
    given = {"epochs": 10.0, "validations": 10, "hours": 24.0}
    papers, huge = (estimate(s, curves, Cluster(), **given) for s in (PAPERS100M, HUNDRED_BILLION))  # type: ignore[arg-type]
    assert papers.hours <= 24
    assert huge.machines > papers.machines
    assert huge.store > 400e9  # the edges alone
    assert own_memory(HUNDRED_BILLION) > HUNDRED_BILLION.nodes * 12
    twice = estimate(PAPERS100M, curves, Cluster(), epochs=20.0, validations=20, hours=1e9)
    once = estimate(PAPERS100M, curves, Cluster(), epochs=10.0, validations=10, hours=1e9)
    assert (twice.machines, once.machines) == (1, 1)
    assert twice.hours == pytest.approx(2 * once.hours)
    told = table(points())
    assert "ogbn-papers100M" in told
    assert "breaks first" in told


@pytest.mark.slow
def test_growth_is_measured_once(tmp_path: Any) -> None:
    options = [
        "--sizes",
        "2000,4000",
        "--threads",
        "1",
        "--results",
        str(tmp_path / "r"),
        "--scratch",
        str(tmp_path / "s"),
    ]
    result = CliRunner().invoke(scale_growth.app, ["grow", *options])
    assert result.exit_code == 0, result.output
    kept = {path.name: path.read_text() for path in (tmp_path / "r").iterdir()}
    assert sorted(kept) == ["2000.json", "4000.json"]
    assert all('"batch step seconds"' in text and '"why_not": {}' in text for text in kept.values())
    assert CliRunner().invoke(scale_growth.app, ["grow", *options]).exit_code == 0
    assert {path.name: path.read_text() for path in (tmp_path / "r").iterdir()} == kept


def test_the_page_shows_the_committed_results() -> None:
    page = cost_model.PAGE.read_text()
    assert page == cost_model.written(page)
