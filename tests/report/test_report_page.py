"""The report: well-formed, self-contained, and its numbers are the evaluation's."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

from aggbuffer import FitConfig
from aggbuffer.errors import BufferFileError
from aggbuffer.report import fit_and_judge, render, write_report

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Tags in order, checked to be closed in order, and all text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def graph() -> Data:
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(90) % 3
    x = torch.nn.functional.one_hot(y, 4).float() + 0.8 * torch.randn(90, 4, generator=draw)
    ends = torch.randint(90, (2, 600), generator=draw)
    ends = torch.unique(ends[:, (y[ends[0]] == y[ends[1]]) & (ends[0] < ends[1])], dim=1)
    part = torch.rand(90, generator=draw)
    masks = {"train_mask": part < 0.3, "val_mask": (part >= 0.3) & (part < 0.6), "test_mask": part >= 0.6}
    return Data(x=x, y=y, edge_index=torch.cat([ends, ends.flip(0)], dim=1), **masks)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        gnn = GCN(4, 8, 2, 3)
    file = tmp_path_factory.mktemp("run") / "x.aggbuffer.safetensors"
    run = fit_and_judge(gnn, graph(), file, config=FitConfig(max_epochs=60, seed=7), progress=False)
    return run.to_dict(title="A <b>title</b> & more", description="What it is.", load_code='ab.load(gnn, "x")')


@pytest.fixture(scope="module")
def page(record: dict[str, Any]) -> Page:
    return Page(render(record))


def test_the_record_is_json(record: dict[str, Any]) -> None:
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert render(json.loads(json.dumps(record))) == render(record)


def test_nothing_is_fetched_from_anywhere(record: dict[str, Any]) -> None:
    text = render(record)
    assert len(text) < 1_000_000
    assert not re.search(r"https?:|//[a-z]|url\(|@import", text.split("<body>")[0])
    assert not re.search(r"https?:", text)
    for tag, attributes in Page(text).tags:
        assert tag not in ("img", "iframe", "object", "embed")
        for name in ("src", "href"):
            assert attributes.get(name) in (None, "data:,")
    assert "default-src 'none'" in text


def test_the_numbers_are_those_of_the_evaluation(record: dict[str, Any], page: Page) -> None:
    text = " ".join(page.text.split())
    for row in record["comparison"]["differences"]:
        for score in (row["before"], row["after"]):
            assert f"{100 * score['accuracy']:.1f} %" in text
    half = next(row for row in record["comparison"]["differences"] if row["kept"] == 0.5)
    before, after = (f"{100 * half[side]['accuracy']:.1f} %" for side in ("before", "after"))
    assert f"Half of the edges gone before: {before} → after: {after}" in text
    assert record["diagnosis"]["in_words"] in text
    assert f"kept: epoch {record['fit']['best_epoch']}" in text
    assert record["base"]["fingerprint"] in text
    assert f"{record['buffer']['parameters']:,}" in text
    assert record["load_code"] in text


def test_text_is_escaped(record: dict[str, Any], page: Page) -> None:
    assert record["title"] in page.text
    assert "<b>" not in render(record)


def test_a_screen_reader_finds_its_way(page: Page) -> None:
    assert page.named("html")[0]["lang"] == "en"
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(levels))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert all(cell.get("scope") in ("row", "col") for cell in page.named("th"))
    for svg in page.named("svg"):
        assert svg["role"] == "img"
        assert set(str(svg["aria-labelledby"]).split()) <= set(ids)
    for section in page.named("section"):
        assert section["aria-labelledby"] in ids


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_have_contrast(scheme: str) -> None:
    css = (Path(render.__code__.co_filename).parent / "page.css").read_text()
    blocks = re.findall(r":root \{([^}]*)\}", css)
    colours = dict(re.findall(r"--(\w+): #(\w{6})", blocks[0 if scheme == "light" else 1]))
    for ink in ("ink", "muted", "accent"):
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


def test_a_run_without_epochs_or_labels_still_has_a_page(record: dict[str, Any]) -> None:
    bare = {**record, "comparison": None, "diagnosis": None, "fit": {**record["fit"], "history": []}}
    assert "no labelled test nodes" in Page(render(bare)).text


def test_an_unwritable_path_is_refused(record: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BufferFileError, match="cannot be written"):
        write_report(tmp_path / "no" / "report.html", record)


def test_a_browser_opens_it_without_complaint(record: dict[str, Any], tmp_path: Path) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("chromium is not installed")
    report = tmp_path / "report.html"
    write_report(report, record)
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
               "--enable-logging=stderr", "--log-level=0", "--dump-dom", report.as_uri()]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "CONSOLE" not in result.stderr, result.stderr
    assert record["base"]["fingerprint"] in result.stdout
