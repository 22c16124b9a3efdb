"""What the tables say follows from the results, the same by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from paper import bars, picks, published, recipes, render, search, statistics
from paper.definitions import HERE, TABLES, TWELVE, Line, Table
from paper.readme import PAGE, current
from paper.settings import GRIDS
from paper.store import Store
from paper.tables import fill
from paper.units import Unit


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results", tmp_path / "claims")


def scored(overall: float, tail: float = 0.5, none: float = 0.5, **more: Any) -> dict[str, Any]:
    test = {"overall": {"accuracy": overall}, "tail": {"accuracy": tail}, "edge_removal": {"0.0": {"accuracy": none}}}
    return {"test": test, "seconds": 1.0, **more}


def put(store: Store, method: str, accuracies: list[float], dataset: str = "Cora", **more: Any) -> None:
    for split, value in enumerate(accuracies):
        store.write(Unit.of(dataset, method, split), scored(value, **more))


SMALL = Table(
    "main",
    "A small one",
    (Line("GCN", "GCN", "GCN"), Line("AGG", "AGG", "AGG"), Line("GCN_B", "GCN_B paper", "AGG_B")),
    ("Cora", "WikiCS"),
    published=("blocks",),
    ranked=True,
)


def test_statistics_by_hand() -> None:
    assert statistics.mean([1.0, 2.0, 6.0]) == 3.0
    assert statistics.deviation([1.0, 2.0, 6.0]) == pytest.approx(math.sqrt(7))
    assert statistics.ranks([70.0, 80.0, 70.0, 60.0]) == [2.5, 1.0, 2.5, 4.0]
    # Differences 1, 2, 6: mean 3, standard error sqrt(7 / 3), Student's 97.5 % point for two degrees 4.30265.
    found = statistics.paired([10.0, 10.0, 10.0], [11.0, 12.0, 16.0])
    half = 4.30265 * math.sqrt(7 / 3)
    assert (found.difference, found.count) == (3.0, 3)
    assert [found.low, found.high] == pytest.approx([3 - half, 3 + half], rel=1e-5)
    assert math.isnan(statistics.paired([1.0], [2.0]).low)


def test_recipes_by_hand(store: Store) -> None:
    for split, (text, doubled) in enumerate([(0.5, 0.45), (0.4, 0.44), (0.3, None)]):
        store.write(Unit.of("Cora", "GCN_B paper", split), scored(0.8, training={"val_loss": text}))
        if doubled:
            store.write(Unit.of("Cora", "departure self-loops", split), scored(0.8, training={"best_score": doubled}))
    assert recipes.changes(store, "departure self-loops")["Cora"] == pytest.approx([-10.0, 10.0])
    (told,) = [line for line in recipes.report(store).splitlines() if "doubled" in line]
    assert "(2)" in told
    assert "GCN" not in [line.label for line in recipes.lines()]


def test_cells_by_hand(store: Store) -> None:
    put(store, "GCN", [0.82, 0.84])
    put(store, "AGG", [0.80])
    put(store, "GCN_B paper", [0.86, 0.88], picked={"drop": 0.1})
    filled = fill(SMALL, store)
    gcn, agg, buffered = (row.cells["Cora"] for row in filled.sections[0].rows)
    assert (gcn.mean, gcn.deviation, gcn.splits) == pytest.approx((83.0, math.sqrt(2), 2))
    assert gcn.published == (83.44, 1.44)
    assert gcn.difference == pytest.approx(-0.44)
    assert (gcn.within, agg.within, buffered.within) == (True, False, False)
    assert (gcn.best, agg.best, buffered.best) == (False, False, True)
    assert math.isnan(agg.deviation)
    assert [row.rank for row in filled.sections[0].rows] == [2.0, 3.0, 1.0]
    assert [row.published_rank for row in filled.sections[0].rows] == [4.75, 4.92, 1.58]
    assert filled.absent == {"WikiCS": "its files were not to be had where these results were made"}


def test_formats_say_the_same(store: Store) -> None:
    put(store, "GCN", [0.82, 0.84])
    put(store, "GCN_B paper", [0.86, 0.88], picked={"drop": 0.1})
    filled = fill(SMALL, store)
    told = render.markdown(filled)
    assert "83.00 ± 1.41 (2)" in told
    assert "**87.00** ± 1.41 (2)" in told
    assert "84.84 ± 1.39, +2.16 ✗" in told
    assert f"† {render.PICKED}" in told
    assert "| WikiCS |" in told
    latex = render.latex(filled)
    assert r"$\mathbf{87.00}_{\pm 1.41}$ (2)" in latex
    assert r"GCN\_B$^\dagger$" in latex.replace(" $", "$")
    plain = json.loads(render.as_json(filled))
    assert plain["values"]["overall"]["GCN"]["Cora"]["mean"] == 83.0
    assert plain["values"]["overall"]["AGG"]["Cora"]["mean"] is None
    assert plain["ranks"]["GCN"] == {"ours": None, "published": 4.75}


def test_best_of_a_pair_is_bold_in_each_pair() -> None:
    groups = [line.group for line in TABLES["architectures"].lines]
    assert groups == ["SAGE", "SAGE", "GAT", "GAT", "SGC", "SGC", "GIN", "GIN"]


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_every_line_with_a_published_number_finds_it(table: Table) -> None:
    for metric in table.metrics:
        for line in table.lines:
            for dataset in table.datasets if line.published else ():
                assert published.value(table.published, metric, line.published, dataset), (metric, line.label, dataset)


def test_bars_by_hand(store: Store) -> None:
    for dataset in HERE:
        usual = published.value(("main",), "overall", "GCN", dataset)
        after = published.value(("main",), "overall", "GCN_B", dataset)
        assert usual
        assert after
        for split, noise in enumerate((-0.001, 0.0, 0.001)):
            store.write(Unit.of(dataset, "GCN", split), scored(usual[0] / 100 + noise, 0.5, 0.5))
            gained = scored(after[0] / 100 + noise, 0.6, 0.5 if dataset == "Cora" else 0.7)
            store.write(Unit.of(dataset, "GCN_B paper", split), gained)
    counts = [count for _, count, _ in bars.verdicts(bars.compare(store, "GCN_B paper"))]
    assert counts == [6, 6, 6, 6, 5]
    report = bars.report(store)
    assert "+1.40 [+1.40, +1.40] (+1.40)" in report
    assert "GCN_B reference" not in report


def test_a_search_is_judged_on_validation_and_goes_on_where_it_stopped(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picks, "CONFIGS", tmp_path / "configs")
    ratios = search.units(store, ["Cora"], ["DropEdge"])
    assert [dict(unit.changes)["drop"] for unit in ratios] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    for unit in ratios[:-1]:
        store.write(unit, {"validation": 0.8 if dict(unit.changes)["drop"] in (0.3, 0.6) else 0.7})
    assert search.pick(store, "Cora", "DropEdge") is None
    store.write(ratios[-1], {"validation": 0.7})
    assert search.pick(store, "Cora", "DropEdge") == {
        "changes": {"drop": 0.3}, "validation": 0.8, "tried": 10, "split": 0
    }  # fmt: skip

    def value(unit: Unit) -> float:  # best: lr 1e-3, then dropout 0.2 and width 64
        changes = dict(unit.changes)
        return 0.5 + 0.1 * (changes.get("lr") == 1e-3) + 0.01 * (changes.get("dropout") == 0.2) + 0.001 * (
            changes.get("hidden") == 64
        )  # fmt: skip

    rounds = 0
    while todo := [unit for unit in search.units(store, ["Cora"], ["MLP"]) if not store.has(unit)]:
        rounds += 1
        for unit in todo:
            store.write(unit, {"validation": value(unit)})
    assert rounds == 1 + len(GRIDS["MLP"])
    search.write_picks(store, ["Cora"])
    chosen = picks.read("Cora")
    assert chosen["MLP"]["changes"] == {"dropout": 0.2, "hidden": 64, "lr": 1e-3}
    assert chosen["MLP"]["tried"] == 1 + 2 + 2 + 3 + 2
    assert picks.for_unit(Unit.of("Cora", "MLP", 4)) == chosen["MLP"]["changes"]
    assert picks.for_unit(Unit.of("Cora", "GCN", 4)) is None
    assert picks.for_unit(Unit.of("Cora", "DropEdge", 0, {"drop": 0.5, "layers": 4})) is None
    with pytest.raises(LookupError, match="paper run search --datasets Cora"):
        picks.for_unit(Unit.of("Cora", "TUNEUP", 0))


def test_the_whole_grid_of_the_buffer_is_there(store: Store) -> None:
    grid = search.units(store, ["Cora"], ["GCN_B paper"])
    assert len(grid) == len(set(grid)) == 3 * 4 * 4
    assert all("results/search/" in store.path(unit).as_posix() for unit in grid)


def test_published_cells_are_those_of_the_paper(shared: Path) -> None:
    from paper.published.extract import tables

    source = shared / "paper" / "aggregation_buffer.tex"
    if not source.is_file():
        pytest.skip(f"needs the paper's source at {source}")
    read = tables(source.read_text())
    assert {path.stem for path in published.FOLDER.glob("*.json")} == set(read)
    for name, table in read.items():
        assert published.read(name) == json.loads(json.dumps(table)), name


def test_published_cells_by_eye() -> None:
    """A sample copied from the printed tables by hand, so that a mistake in reading them cannot hide."""
    sample = [
        ("main", "overall", "GCN_B", "Cora", (84.84, 1.39)),
        ("main", "head", "TUNEUP", "CiteSeer", (79.43, 0.83)),
        ("main", "tail", "MLP", "Chameleon", (28.94, 5.09)),
        ("disparity", "heterophilous", "DropMessage", "Chameleon", (37.90, 7.63)),
        ("disparity", "homophilous", "GraphPatcher", "PubMed", (96.04, 0.28)),
        ("architectures", "overall", "GIN_B", "Chameleon", (41.72, 2.41)),
        ("blocks", "overall", "single", "Photo", (92.00, 1.51)),
        ("losses", "overall", "cross-entropy", "CS", (93.29, 0.13)),
        ("hyperparameters", "overall", "GCN_B 8 layers", "PubMed", (86.18, 0.62)),
        ("hyperparameters", "overall", "GCN Tanh", "ogbn-arxiv", (71.72, 0.15)),
        ("components", "overall", "minus freezing", "ogbn-arxiv", (72.91, 0.14)),
        ("removal", "keep 0.0", "GCN_B", "Photo", (86.11, 3.35)),
        ("removal", "keep 0.25", "DropEdge", "CiteSeer", (68.94, 0.46)),
        ("depth", "overall", "DropEdge_B 20 layers", "CS", (88.77, 1.08)),
        ("depth", "overall", "GCN 16 layers", "PubMed", (82.08, 0.45)),
        ("large", "heterophilous", "GCN_B", "Reddit", (85.01, 0.02)),
        ("large-removal", "keep 0.5", "GCN", "Flickr", (47.49, 0.52)),
    ]
    for name, metric, line, dataset, expected in sample:
        assert published.value((name,), metric, line, dataset) == expected
    assert published.read("datasets")["values"]["nodes"]["Squirrel"] == 2334
    assert published.read("buffer")["values"]["strength"]["CS"] == 0.1
    assert set(published.read("main")["values"]["overall"]["GCN"]) == set(TWELVE)


def test_readme_shows_the_committed_results() -> None:
    assert current(PAGE.read_text(), Store()) == PAGE.read_text(), "run `python -m paper readme`"
