"""The page in a real browser: everything on it works, for everyone, and nothing leaves it."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from report_runs import Record, fitted, small

from aggbuffer import FitConfig
from aggbuffer.data import DEMO_DESCRIPTION, demo_graph
from aggbuffer.demo import load_code, train_base
from aggbuffer.report import fit_and_judge, render, render_several

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDTHS, SCHEMES = (360, 768, 1280), ("light", "dark")


Opener = Callable[..., AbstractContextManager[Any]]


@pytest.fixture(scope="session")
def demo_record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Of the demonstration, with few epochs of the fit."""
    folder, data = tmp_path_factory.mktemp("demo"), demo_graph()
    gnn, _ = train_base(data)
    file = folder / "demo.aggbuffer.safetensors"
    run = fit_and_judge(gnn, data, file, config=FitConfig(drop_edge=0.7, max_epochs=150), progress=False)
    return run.to_dict(title="Handwritten digits", description=DEMO_DESCRIPTION, load_code=load_code(folder))


@pytest.fixture(scope="session")
def demo_page(demo_record: Record, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(demo_record))
    return path


@pytest.fixture(scope="session")
def several_page(demo_record: Record, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    short, path = fitted(folder, small()), folder / "several.html"
    path.write_text(render_several([("one", demo_record), ("two", short), ("three", short)]))
    return path


@pytest.fixture
def opened(browser: Browser) -> Opener:
    """Opens a file in a context of its own; afterwards nothing must have been fetched, nor any complaint been made."""

    @contextmanager
    def opening(path: Path, **options: Any) -> Iterator[Page]:
        options = {"viewport": {"width": 1280, "height": 900}, **options}
        context = browser.new_context(**options)
        complaints: list[str] = []
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        requests: list[str] = []
        context.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        yield page
        assert complaints == []
        assert [url for url in requests if not url.startswith(("data:", path.as_uri()))] == []
        context.close()

    return opening


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """Where pictures of the pages are kept for people to look at."""
    root = Path(__file__).parents[2]
    folder = Path(os.environ.get("AGGBUFFER_SCREENSHOTS", root / "build" / "screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.parametrize("page_name", ["demo_page", "several_page"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_looks_right(
    opened: Opener, request: pytest.FixtureRequest, screenshots: Path, page_name: str, width: int, scheme: str
) -> None:
    path = request.getfixturevalue(page_name)
    with opened(path, viewport={"width": width, "height": 900}, color_scheme=scheme) as page:
        page.screenshot(path=screenshots / f"{page_name}-{width}-{scheme}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
        assert page.evaluate(CLIPPED) == []
        assert page.evaluate(OVERLAPPING) == []


@pytest.mark.parametrize("task", ["multilabel", "regression"])
def test_other_tasks_look_right_on_a_phone(opened: Opener, tmp_path: Path, screenshots: Path, task: str) -> None:
    path = tmp_path / "report.html"
    path.write_text(render(fitted(tmp_path, small(task), edge_loss=0.25)))
    with opened(path, viewport={"width": 360, "height": 900}) as page:
        page.screenshot(path=screenshots / f"{task}-360-light.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.evaluate(CLIPPED) == []
        assert page.evaluate(OVERLAPPING) == []


# Texts of charts that stick out of their picture.
CLIPPED = """() => [...document.querySelectorAll("svg")].filter(svg => svg.checkVisibility()).flatMap(svg => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter(text => {
    const t = text.getBoundingClientRect();
    return t.left < box.left - 0.5 || t.right > box.right + 0.5 || t.top < box.top - 0.5 || t.bottom > box.bottom + 0.5;
  }).map(text => text.textContent);
})"""
# Texts of charts that lie on each other.
OVERLAPPING = """() => [...document.querySelectorAll("svg")].filter(svg => svg.checkVisibility()).flatMap(svg => {
  const texts = [...svg.querySelectorAll("text")].map(t => [t.textContent, t.getBoundingClientRect()]), found = [];
  texts.forEach(([one, a], i) => texts.slice(i + 1).forEach(([other, b]) => {
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (across > 1 && down > 4) found.push(`${one} / ${other}`);
  }));
  return found;
})"""


@pytest.mark.parametrize("page_name", ["demo_page", "several_page"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_axe_finds_nothing_serious(opened: Opener, request: pytest.FixtureRequest, page_name: str, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    with opened(request.getfixturevalue(page_name), color_scheme=scheme) as page:
        found = axe.Axe().run(page).response["violations"]
    assert [(rule["id"], rule["nodes"][0]["html"]) for rule in found if rule["impact"] in ("serious", "critical")] == []


def test_the_slider_tells_the_numbers_of_every_measured_share(
    opened: Opener, demo_page: Path, demo_record: Record
) -> None:
    rows = [row for row in demo_record["comparison"]["differences"] if row["kept"] is not None]
    with opened(demo_page) as page:
        slider = page.get_by_label("Share of edges kept", exact=True)
        slider.focus()
        page.keyboard.press("Home")
        lines = []
        for row in rows:
            told = page.locator("#readout").inner_text()
            assert f"{100 * row['before']['accuracy']:.1f} %" in told
            assert f"{100 * row['after']['accuracy']:.1f} %" in told
            assert told.startswith(f"{100 * row['kept']:.0f} % of the edges kept")
            assert slider.get_attribute("aria-valuetext") == f"{100 * row['kept']:.0f} % of the edges kept"
            assert page.locator("#removal-table .chosen th").inner_text() == f"{100 * row['kept']:.0f} %"
            lines.append(float(page.locator("#removal ~ figure .wide .cursor").get_attribute("x1")))
            page.keyboard.press("ArrowRight")
    shares = [row["kept"] for row in rows]
    assert len(shares) == 13
    expected = [lines[0] + (1 - share) * (lines[-1] - lines[0]) for share in shares]
    assert lines == pytest.approx(expected, abs=0.2)


def test_tables_sort_by_mouse_and_by_keyboard(opened: Opener, demo_page: Path) -> None:
    with opened(demo_page) as page:
        table = page.locator("#nodes-less")
        before = table.locator("tbody th").all_inner_texts()
        degrees = lambda: [int(cell) for cell in table.locator("tbody td:nth-child(3)").all_inner_texts()]  # noqa: E731
        head = table.get_by_role("columnheader", name="Neighbours")
        head.get_by_role("button").click()
        assert degrees() == sorted(degrees())
        assert head.get_attribute("aria-sort") == "ascending"
        head.get_by_role("button").focus()
        page.keyboard.press("Enter")
        assert degrees() == sorted(degrees(), reverse=True)
        assert head.get_attribute("aria-sort") == "descending"
        table.get_by_role("columnheader", name="Node").get_by_role("button").click()
        assert head.get_attribute("aria-sort") is None
        nodes = table.locator("tbody th").all_inner_texts()
        assert nodes == sorted(before, key=int)


@pytest.mark.parametrize("script", [True, False])
def test_the_csv_holds_the_nodes_that_turned(
    opened: Opener, demo_page: Path, demo_record: Record, script: bool
) -> None:
    with opened(demo_page, java_script_enabled=script) as page:
        links = page.get_by_role("link", name=re.compile("as CSV"))
        assert links.count() == 2
        for link, at in zip(links.all(), demo_record["flips"].values(), strict=True):
            with page.expect_download() as download:
                link.click()
            rows = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
            assert len(rows) == at["gained"] + at["lost"] > 10
            for change in ("gained", "lost"):
                listed = [row for row in rows if row["change"] == change]
                assert [int(row["node"]) for row in listed] == [row[0] for row in at["listed"][change]]
                for row in listed:
                    assert (row["after"] == row["true"]) == (change == "gained")
                    assert (row["before"] == row["true"]) == (change == "lost")


def test_the_code_can_be_copied(opened: Opener, demo_page: Path, demo_record: Record) -> None:
    with opened(demo_page, permissions=["clipboard-read", "clipboard-write"]) as page:
        button = page.get_by_role("button", name="Copy")
        button.click()
        page.wait_for_function("document.querySelector('button.copy').textContent !== 'Copy'")
        assert page.evaluate("getSelection().toString()").strip() == demo_record["load_code"]
        assert page.evaluate("navigator.clipboard.readText()") == demo_record["load_code"]


def test_the_keyboard_reaches_everything(opened: Opener, demo_page: Path) -> None:
    with opened(demo_page) as page:
        reached = set()
        for _ in range(120):
            page.keyboard.press("Tab")
            here = page.evaluate(
                "(() => { const e = document.activeElement; return e === document.body ? null :"
                " [e.tagName, e.textContent.trim().slice(0, 40) || e.id, getComputedStyle(e).outlineStyle]; })()"
            )
            if here is None:
                break
            assert here[2] != "none", here  # whoever is there can see it
            reached.add((here[0], here[1]))
        assert here is None, "focus never leaves the page"
    tags = [tag for tag, _ in reached]
    assert ("INPUT", "kept") in reached
    assert ("BUTTON", "Copy") in reached
    assert tags.count("A") >= 11  # the contents and the downloads
    assert tags.count("BUTTON") >= 8


def test_without_scripts_nothing_is_missing(opened: Opener, demo_page: Path, demo_record: Record) -> None:
    half = next(row for row in demo_record["comparison"]["differences"] if row["kept"] == 0.5)
    with opened(demo_page, java_script_enabled=False) as page:
        assert not page.get_by_label("Share of edges kept", exact=True).is_visible()
        assert not page.get_by_role("button").all()
        told = page.locator("#readout").inner_text()
        assert f"{100 * half['after']['accuracy']:.1f} %" in told
        assert page.locator("#removal-table tbody tr").count() == 13
        assert page.locator("#load").inner_text().strip() == demo_record["load_code"]


def test_it_prints_whole(opened: Opener, demo_page: Path, demo_record: Record) -> None:
    with opened(demo_page, viewport={"width": 718, "height": 1000}, color_scheme="dark") as page:
        pdf = page.pdf(
            format="A4", print_background=True, margin=dict.fromkeys(("top", "left", "right", "bottom"), "10mm")
        )
        page.emulate_media(media="print", color_scheme="dark")
        assert not page.get_by_label("Share of edges kept", exact=True).is_visible()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        cut = page.evaluate(
            "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1"
            " || e.scrollHeight > e.clientHeight + 1).map(e => e.getAttribute('aria-label'))"
        )
        assert cut == []
        listed = demo_record["flips"]["full"]["listed"].values()
        assert page.locator("#nodes-full tbody tr:visible").count() == sum(min(10, len(rows)) for rows in listed)
    assert pdf.startswith(b"%PDF")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 14


def test_the_comparison_links_to_every_run(opened: Opener, several_page: Path) -> None:
    with opened(several_page) as page:
        links = page.get_by_role("navigation").get_by_role("link")
        assert links.count() == 4
        for link in links.all():
            link.click()
            target = link.get_attribute("href")
            assert page.locator(str(target)).is_visible()
        assert page.locator("table.runs tbody tr").count() == 3
        assert page.locator(".wide .curve").count() == 6  # before and after of each
