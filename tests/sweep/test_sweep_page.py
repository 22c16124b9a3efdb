"""The page of a search: well-formed, self-contained, readable, and its numbers are the trials'."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from sweep_cases import SHORT

import aggbuffer
from aggbuffer import SweepResult
from aggbuffer.sweep.findings import axes_of, effects
from aggbuffer.sweep.page import render
from aggbuffer.sweep.records import TrialRecord
from aggbuffer.sweep.space import Space
from helpers_fit import base, community_graph
from html_page import Page


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    space = {
        "strength": [1, 0.5],
        "directions": ["together", "independent"],
        "lr": {"low": 1e-3, "high": 0.1, "log": True},
        "patience": 5,
    }
    out = tmp_path_factory.mktemp("page")
    return aggbuffer.sweep(base(), community_graph(), out, space=space, trials=9, name="<b>a & b</b>", **SHORT)


def test_nothing_is_fetched_from_anywhere_and_names_are_escaped(found: SweepResult) -> None:
    text = found.page.read_text()
    assert len(text) < 500_000
    assert not re.search(r"https?:|url\(|@import", text)
    assert "default-src 'none'" in text
    for tag, attributes in Page(text).tags:
        assert tag not in ("img", "iframe", "object", "embed")
        assert attributes.get("src") is None
        assert attributes.get("href") in (None, "data:,")
    assert "<b>" not in text
    assert "<b>a & b</b>" in Page(text).text


def test_the_table_holds_every_trial_and_marks_the_best(found: SweepResult) -> None:
    page = Page(found.page.read_text())
    words = " ".join(page.text.split())
    for trial in found.trials:
        assert trial.score is not None
        assert f"{trial.score:.4f}" in words
        assert f"{trial.settings['lr']:.4g}" in words
    assert sum(tag == "tr" for tag, _ in page.tags) == len(found.trials) + 1
    assert [a.get("class") for tag, a in page.tags if tag == "tr"].count("best") == 1
    assert f"{found.base['val_loss']:.4f} without a buffer" in words


def test_a_screen_reader_finds_its_way(found: SweepResult) -> None:
    page = Page(found.page.read_text())
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in page.tags:
        if tag == "svg":
            assert set(str(attributes["aria-labelledby"]).split()) <= set(ids)
        if tag == "section":
            assert attributes["aria-labelledby"] in ids
        if tag == "th":
            assert attributes.get("scope") in ("row", "col")


def test_a_search_of_one_point_still_has_a_page(tmp_path: Path) -> None:
    result = aggbuffer.sweep(base(), community_graph(), tmp_path, space={"strength": [0.5]}, **SHORT)
    assert "1 of 1 points, compared" in " ".join(Page(render(result)).text.split())


def trial(number: int, score: float, **settings: float) -> TrialRecord:
    return TrialRecord(number, number, "complete", settings, score, score, None, 1, 1, 1.0, "w", None, [])


def test_shares_of_the_variance_are_those_of_the_means() -> None:
    space = Space.of({"strength": [1, 0.5], "dropout": [0, 0.5], "lr": [0.1]})
    # strength moves the score by 2, dropout by 1, and they do not interact: 4 / (4 + 1) and 1 / (4 + 1).
    trials = [
        trial(i, 2 * (strength == 1) + (dropout == 0), strength=strength, dropout=dropout, lr=0.1)
        for i, (strength, dropout) in enumerate([(1, 0), (1, 0.5), (0.5, 0), (0.5, 0.5)])
    ]
    found = effects(axes_of(space), trials)
    assert [(effect.axis.name, effect.share) for effect in found] == [
        ("strength", pytest.approx(0.8)),
        ("dropout", pytest.approx(0.2)),
    ]
    assert [mean for _, mean in found[0].means] == [0.5, 2.5]  # 0.5 is left of 1


def test_a_logarithmic_range_is_drawn_in_the_logarithm() -> None:
    axis = axes_of(Space.of({"lr": {"low": 1e-3, "high": 1e-1, "log": True}}))[0]
    assert axis.at(1e-2) == pytest.approx(0.5)
    assert axis.level(1e-3) == 0
    assert axis.level(1e-1) == 4


def test_a_browser_sorts_the_table_and_finds_nothing_wrong(found: SweepResult, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 360, "height": 800})
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(found.page.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    column = page.locator("#table thead th").nth(4)
    assert column.inner_text().strip().startswith("Validation loss")

    def scores() -> list[float]:
        return [float(text) for text in page.locator("#table tbody tr td:nth-child(5)").all_inner_texts()]

    column.locator("button").click()
    assert scores() == sorted(scores())
    assert column.get_attribute("aria-sort") == "ascending"
    column.locator("button").click()
    assert scores() == sorted(scores(), reverse=True)
    page.close()
    assert complaints == []
