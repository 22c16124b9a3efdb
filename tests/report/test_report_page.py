"""The report: well-formed, self-contained, and its numbers are the evaluation's."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest
from report_runs import Record, fitted, small

from aggbuffer import FitConfig
from aggbuffer.errors import BufferFileError, ConfigError
from aggbuffer.report import render, render_several, write_report
from aggbuffer.report.flips import LISTED
from html_page import Page


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return fitted(tmp_path_factory.mktemp("run"), small())


@pytest.fixture(scope="module")
def page(record: Record) -> Page:
    return Page(render(record))


def test_the_record_is_json(record: Record) -> None:
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert render(json.loads(json.dumps(record))) == render(record)


def test_nothing_is_fetched_from_anywhere(record: Record) -> None:
    text = render(record)
    assert len(text) < 1_000_000
    assert not re.search(r"https?:|//[a-z]|url\(|@import", text.split("<body>")[0])
    assert not re.search(r"https?:", text)
    for tag, attributes in Page(text).tags:
        assert tag not in ("img", "iframe", "object", "embed")
        assert attributes.get("src") is None
        assert re.match(r"#\w|data:", attributes.get("href") or "#x")
    assert "default-src 'none'" in text


def test_the_numbers_are_those_of_the_evaluation(record: Record, page: Page) -> None:
    text = " ".join(page.text.split())
    for row in record["comparison"]["differences"]:
        for score in (row["before"], row["after"]):
            assert f"{100 * score['accuracy']:.1f} %" in text
            assert score["low"] <= score["accuracy"] <= score["high"]
    half = next(row for row in record["comparison"]["differences"] if row["kept"] == 0.5)
    before, after = (f"{100 * half[side]['accuracy']:.1f} %" for side in ("before", "after"))
    assert f"Half of the edges gone before: {before} → after: {after}" in text
    assert record["diagnosis"]["in_words"] in text
    assert f"kept: epoch {record['fit']['best_epoch']}" in text
    assert record["base"]["fingerprint"] in text
    assert f"{record['buffer']['parameters']:,}" in text
    assert record["load_code"] in text


def test_text_is_escaped(record: Record, page: Page) -> None:
    assert record["title"] in page.text
    assert "<b>" not in render(record)


def test_a_screen_reader_finds_its_way(page: Page) -> None:
    assert page.named("html")[0]["lang"] == "en"
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(levels))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert all(cell.get("scope") in ("row", "col", "colgroup") for cell in page.named("th"))
    for svg in page.named("svg"):
        assert svg["role"] == "img"
        assert set(str(svg["aria-labelledby"]).split()) <= set(ids)
    for section in page.named("section"):
        assert section["aria-labelledby"] in ids


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_have_contrast(scheme: str) -> None:
    css = (Path(render.__code__.co_filename).parent / "page.css").read_text()
    blocks = re.findall(r":root \{([^}]*)\}", css)
    colours = dict(re.findall(r"--(\w+): #(\w{6});", blocks[0 if scheme == "light" else 1]))
    for ink in ("ink", "muted", "accent", "wrong", *(f"run{i}" for i in range(1, 7))):
        for ground in ("paper", "panel"):
            assert contrast(colours[ink], colours[ground]) >= 4.5  # WCAG AA for text
    assert contrast(colours["base"], colours["paper"]) >= 3  # and for lines


def contrast(one: str, other: str) -> float:
    """WCAG's contrast ratio of two colours."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_a_bare_run_still_has_a_page_that_says_why(tmp_path: Path) -> None:
    data = small()
    del data.test_mask
    config = FitConfig(max_epochs=0)
    bare = fitted(tmp_path, data, config=config, diagnosed=False)
    text = " ".join(Page(render(bare)).text.split())
    assert "The graph has no test_mask, so it has no labelled test nodes to be judged on." in text
    assert "no nodes were held out to judge the result" in text
    assert "The fit ran no epochs." in text
    assert "was not diagnosed" in text
    assert "Which predictions turned" not in text
    del data.y, data.val_mask, data.train_mask
    unlabelled = fitted(tmp_path, data, config=FitConfig(max_epochs=2, monitor="rc_loss"))
    text = " ".join(Page(render(unlabelled)).text.split())
    assert "The graph has no labels and no test_mask" in text
    assert "which needs no labels" in text


@pytest.mark.parametrize("task", ["multilabel", "regression"])
def test_other_tasks_have_a_page(task: str, tmp_path: Path) -> None:
    record = fitted(tmp_path, small(task), edge_loss=0.25)
    text = " ".join(Page(render(record)).text.split())
    assert "With 25 % of the edges gone" in text
    assert "Neighbours agree or differ in classes only." in text
    measure = "RMSE" if task == "regression" else "Accuracy"
    assert f"{measure} on {record['held_out']['test']} test nodes" in text
    assert ("closer to the truth" in text) == (task == "regression")
    assert ("False alarms" in text) == (task == "multilabel")


def test_the_edge_loss_that_is_expected_is_evaluated(tmp_path: Path) -> None:
    record = fitted(tmp_path, small(), edge_loss=0.37)
    assert 0.63 in [row["kept"] for row in record["comparison"]["differences"]]
    text = " ".join(Page(render(record)).text.split())
    assert "With 37 % of the edges gone" in text
    assert "Half of the edges gone" not in text
    row = next(row for row in record["comparison"]["differences"] if row["kept"] == 0.63)
    assert f"{100 * row['after']['accuracy']:.1f} %" in text


@pytest.mark.parametrize("edge_loss", [0.0, 1.0])
def test_the_edge_loss_may_be_nothing_or_everything(edge_loss: float, tmp_path: Path) -> None:
    text = Page(render(fitted(tmp_path, small(), edge_loss=edge_loss))).text
    assert text.count("95 % interval") >= 2 - (edge_loss == 0)
    assert ("With all edges gone" in " ".join(text.split())) == (edge_loss == 1)


def test_an_impossible_edge_loss_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"edge_loss must be in \[0, 1\]"):
        fitted(tmp_path, small(), edge_loss=1.2)
    assert list(tmp_path.iterdir()) == []


def test_the_largest_record_stays_below_a_megabyte(record: Record) -> None:
    classes = [str(i) for i in range(12)]
    row = [123456, 1234, 0.333, "12", "34", "56"]
    listed = {"gained": [row] * LISTED, "lost": [row] * LISTED}
    confusion = {"classes": classes, "folded": 29, "before": [[1234] * 12] * 12, "after": [[1234] * 12] * 12}
    at = {"kept": 1.0, "nodes": 99999, "gained": 9999, "lost": 9999, "listed": listed, "confusion": confusion}
    epochs = [record["fit"]["history"][0] | {"epoch": i} for i in range(1, 5001)]
    layers = [{**record["base"]["layers"][0], "name": f"convs.{i}"} for i in range(32)]
    terms = [{**record["terms"]["layers"][0], "name": f"convs.{i}"} for i in range(32)]
    large = {
        **record,
        "flips": {"full": at, "less": {**at, "kept": 0.5, "draws": 3}},
        "fit": {**record["fit"], "history": epochs},
        "base": {**record["base"], "layers": layers},
        "terms": {**record["terms"], "layers": terms},
    }
    page = render(large)
    assert len(page.encode()) < 1_000_000
    text = " ".join(Page(page).text.split())
    assert "9,999 of 99,999 test nodes" in text
    assert f"Listed are the first {LISTED} gained and {LISTED} lost" in text


def test_settings_are_told_in_words(record: Record) -> None:
    assert "None" not in Page(render(record)).text
    config = record["fit"]["config"] | {"batch": {"seeds": 64, "parts": 4, "fanout": None}}
    text = Page(render({**record, "fit": {**record["fit"], "config": config}})).text
    assert "seeds 64, parts 4" in text
    assert "fanout" not in text


def test_an_unwritable_path_is_refused(record: Record, tmp_path: Path) -> None:
    with pytest.raises(BufferFileError, match="cannot be written"):
        write_report(tmp_path / "no" / "report.html", record)


def test_many_runs_share_a_page(record: Record) -> None:
    runs = [(f"run {i}", {**record, "title": f"Number {i}"}) for i in range(24)]
    page = render_several(runs)
    assert len(page.encode()) < 1_000_000
    assert "The first 6 runs." in page
    assert page.count('class="curve run') == 6 * 2 * 2  # before and after, for wide and for narrow screens
    assert Page(page).text.count("What to keep in mind") == 24
    more = render_several([*runs, *runs])
    assert len(more.encode()) < 1_000_000
    assert Page(more).text.count("Number 23") >= 2
    assert "Too many runs to show each on its own" in more


def test_nothing_that_a_record_holds_becomes_markup(record: Record) -> None:
    """Every string but those with a meaning of their own is hostile."""
    meant = {"format", "task", "monitor", "basis", "created"}

    def hostile(value: object) -> object:
        if isinstance(value, dict):
            return {key: entry if key in meant else hostile(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [hostile(entry) for entry in value]
        return f"</script>'\"><img src=x onerror=alert(1)>{value}" if isinstance(value, str) else value

    changed = hostile(record)
    assert isinstance(changed, dict)
    names = [row["name"] for row in record["comparison"]["differences"]]
    for row, name in zip(changed["comparison"]["differences"], names, strict=True):
        row["name"] = name
    for page in (render(changed), render_several([("a", changed), ("<img>", record)])):
        assert page.count("onerror") > 10
        assert Page(page).named("img") == []
        assert len(Page(page).named("script")) == len(Page(render(record)).named("script")) - ("side by side" in page)
