"""The benchmarks on a graph that takes no time: who takes part computes the same, and what is told is what was kept."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks import __main__ as cli
from benchmarks import bound, graphs, page, results, tables
from benchmarks.interleave import Contender, Outcome, measure
from benchmarks.machine import Machine
from benchmarks.peers.protocol import WARM_UP, CaseFile
from paper.settings import BaseSettings, BufferSettings

RUN = CliRunner()
HERE = Path(sys.executable)
MACHINE = Machine({"n x k @ k x m": 100.0}, {1: 80.0, 256: 20.0}, {16: {1: 20.0, 256: 5.0}, 512: {1: 40.0, 256: 10.0}})


def tiny(
    *, aggregation: str = "sym", residual: bool = False, dropout: float = 0.0, drop_edge: float = 0.5
) -> graphs.Case:
    """Fifty nodes."""
    data = graphs.generated(50, 90, features=12, classes=4)
    base = BaseSettings(8, 1e-2, 5e-4, 0.5, "rw" if aggregation == "rw" else "sym", residual)
    return graphs.Case("tiny", data, base, BufferSettings(0.5, dropout, drop_edge))


def contenders(task: str) -> list[Contender]:
    """All whose environment is there."""
    found = [Contender("ours", "ours", task, HERE), Contender("pyg", "pyg", task, HERE)]
    return found + [Contender("dgl", "dgl", task, cli.DGL_PYTHON) for _ in range(cli.DGL_PYTHON.exists())]


def run(case: graphs.Case, task: str, steps: int = 2) -> dict[str, Outcome]:
    outcomes = measure(case.file(threads=1), contenders(task), steps)
    for outcome in outcomes.values():
        assert not outcome.why
        assert len(outcome.seconds) == steps
    return outcomes


@pytest.mark.parametrize(("aggregation", "residual"), [("rw", False), ("sym", True)])
def test_all_contenders_compute_the_same_losses(aggregation: str, residual: bool) -> None:
    """Where every edge is dropped and no entry is, nothing in a step is random."""
    outcomes = run(tiny(aggregation=aggregation, residual=residual, drop_edge=1.0), "step")
    # The library tells of its first step when the others make theirs, so it is one ahead.
    traces = {name: outcome.notes["losses"][: WARM_UP + 2] for name, outcome in outcomes.items()}
    for trace in traces.values():
        assert len(trace) == WARM_UP + 2
        assert trace == pytest.approx(traces["pyg"], rel=1e-3, abs=1e-6)


def test_all_contenders_have_the_same_base_model() -> None:
    outcomes = run(tiny(), "inference")
    assert results.doubt(outcomes) == ""
    # Ours has buffers that are not zero here; without them it is the same model too.
    own = [Contender(tables.WITHOUT, "ours", "inference_base", HERE)]
    without = measure(tiny().file(threads=1), own, 1)
    assert results.doubt(without | {"pyg": outcomes["pyg"]}) == ""
    assert "are not those of" in results.doubt({"ours, again": outcomes["ours"], "pyg": outcomes["pyg"]})


def test_a_result_tells_everything_that_tables_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "case", lambda name, root=None: replace(tiny(dropout=0.5), name=name))
    results.write_json(vars(MACHINE), tmp_path / "machine.json")
    common = ["--peers", "ours,pyg", "--steps", "2", "--threads", "1", "--results", str(tmp_path)]
    for command in ("step", "base"):
        done = RUN.invoke(cli.app, [command, "--graphs", "Cora", *common])
        assert done.exit_code == 0, done.output
        assert "| Cora" in done.output
    result = json.loads((tmp_path / "step" / "Cora.json").read_text())
    for name in ("ours", "pyg"):
        peer = result["peers"][name]
        assert {"median", "quartiles", "peak_mib", "before_mib", "versions", "last_loss"} <= set(peer)
        assert peer["finite"]
        assert peer["threads"] == 1
        assert peer["peak_mib"] >= peer["before_mib"] > 0
    assert result["ratios"]["pyg"] == pytest.approx(
        result["peers"]["pyg"]["median"] / result["peers"]["ours"]["median"]
    )
    shown = RUN.invoke(cli.app, ["table", "--results", str(tmp_path)]).output
    assert all(title in shown for title in (page.TITLES["step"], page.TITLES["base"], "lower bound"))
    drawn = RUN.invoke(cli.app, ["plot", "--results", str(tmp_path), "--assets", str(tmp_path)])
    assert drawn.exit_code == 0, drawn.output
    assert (tmp_path / "benchmark-step.svg").exists()


def test_a_contender_that_dies_says_why() -> None:
    case = tiny().file(threads=1)
    broken = replace(case, weights={"convs.0.bias": case.weights["convs.0.bias"]})
    absent = Contender("dgl", "dgl", "step", None, "has no environment here")
    outcomes = measure(broken, [Contender("pyg", "pyg", "step", HERE), absent], 1)
    assert re.match("ended with code 1: .*(size mismatch|Missing|convs)", outcomes["pyg"].why)
    assert outcomes["dgl"].why == "has no environment here"
    told = tables.times([results.record("step", broken, outcomes)])
    assert "tiny: dgl has no environment here." in told


def test_a_case_is_read_as_it_was_written(tmp_path: Path) -> None:
    case = tiny(residual=True).file(threads=3)
    case.write(tmp_path / "case.npz")
    found = CaseFile.read(tmp_path / "case.npz")
    assert found.settings == case.settings
    assert found.x.equal(case.x)
    assert found.edge_index.equal(case.edge_index)
    assert set(found.weights) == set(case.weights)
    assert all(found.weights[name].equal(value) for name, value in case.weights.items())


def test_generated_graphs_are_simple_and_as_large_as_asked() -> None:
    data = graphs.generated(100, 700, features=3, classes=5)
    assert data.edge_index.shape == (2, 1400)
    assert data.is_undirected()
    assert not data.has_self_loops()
    assert data.is_coalesced() or data.coalesce().num_edges == 1400
    assert graphs.case(graphs.growing(2000)).data.num_edges == 2000


def test_a_bound_grows_with_the_work() -> None:
    work = bound.Work(1000, 8000, 50_000, (500, 64, 7), kept=0.5, dropout=False, normalised=False)
    small = bound.terms(work, MACHINE)
    assert all(seconds > 0 for seconds in small.values())
    more = [replace(work, edges=80_000), replace(work, dropout=True), replace(work, widths=(500, 128, 7))]
    assert all(sum(bound.terms(other, MACHINE).values()) > sum(small.values()) for other in more)
    # With few entries the features are multiplied as a sparse matrix, with all of them as a dense one.
    dense = bound.terms(replace(work, feature_entries=500_000), MACHINE)["features times buffer weights"]
    assert dense == pytest.approx(MACHINE.product(1000, 500, 71))
    assert small["features times buffer weights"] == pytest.approx(MACHINE.gather(50_000, 71, 500))


def test_the_slope_is_that_of_the_points() -> None:
    def result(edges: int) -> dict[str, Any]:
        return {"directed_edges": edges, "peers": {"ours": {"median": 3e-6 * edges**1.25}, "dgl": {"why": "is not"}}}

    assert tables.slopes([result(10), result(1000), result(50_000)]) == pytest.approx({"ours": 1.25})


def test_the_page_shows_the_committed_results() -> None:
    text = page.PAGE.read_text()
    assert page.current(text) == text, "run `python -m benchmarks table --write`"
    for name in re.findall(r"\(assets/(.*?)\)", text):
        assert (page.PAGE.parent / "assets" / name).exists(), "run `python -m benchmarks plot`"


def test_unknown_names_are_refused() -> None:
    for words in (["step", "--graphs", "Coral"], ["step", "--peers", "tensorflow"]):
        done = RUN.invoke(cli.app, words)
        assert done.exit_code == 2
        assert "there is no" in done.output
