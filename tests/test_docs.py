"""The documentation is true: its code runs, its links lead somewhere, its tables are those of the code."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import aggbuffer
from aggbuffer.text import markdown_table
from pages import ROOT, code_blocks, commands, run_command, shortened, train_bases_once
from paper.settings import BUFFER

sys.path.insert(0, str(ROOT / "tools"))

import check_links
import supported_models

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
NOT_RUN = 6  # blocks of all pages that cannot run in a test
LONG = {"logs.md"}  # MLflow and W&B take seconds to begin

MODULES = [name for name in aggbuffer.__all__ if isinstance(getattr(aggbuffer, name), ModuleType)]
PUBLIC = [name for name in aggbuffer.__all__ if name not in (*MODULES, "__version__")]


def _with_commands(page: Path) -> bool:
    return any("aggbuffer " in block.code for block in code_blocks(page) if block.runs and block.language == "sh")


def _pages() -> list[object]:
    """Pages with code; those that call the command line take a process for each command."""
    names = [page.relative_to(DOCS).as_posix() for page in PAGES if any(block.runs for block in code_blocks(page))]
    slow = {name for name in names if name in LONG or _with_commands(DOCS / name)}
    return [pytest.param(name, marks=[pytest.mark.slow] if name in slow else []) for name in names]


@pytest.mark.parametrize("name", _pages())
@pytest.mark.filterwarnings("ignore")
def test_code_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Block after block, in an empty folder, with nothing but what the page itself has made."""
    monkeypatch.chdir(tmp_path)
    train_bases_once(monkeypatch)
    names: dict[str, object] = {"__name__": "__main__"}
    for block in code_blocks(DOCS / name):
        if not block.runs:
            continue
        if block.language == "python":
            exec(compile(shortened(block.code), name, "exec"), names)
        else:
            for words in commands(block.code):
                _check_printed(words, run_command(words, tmp_path), DOCS / name)


def _check_printed(words: list[str], output: str, page: Path) -> None:
    """What a page shows of a command's output has the same lines, and the same signs, as what the command prints."""
    shown = re.search(rf"<!-- printed by: {re.escape(' '.join(words[:2]))} -->\n```\n(.*?)```", page.read_text(), re.S)
    if shown is None:
        return
    change = re.compile(r"^ ?(\w+|\d+ % of edges) +[\d.]+ % +[\d.]+ % +([+-])", re.MULTILINE)
    assert change.findall(shown[1]) == change.findall(output)
    assert change.findall(output)


def test_few_blocks_do_not_run() -> None:
    found = [(page.name, block.attributes) for page in PAGES for block in code_blocks(page) if not block.runs]
    assert len(found) == NOT_RUN, found


def test_links_lead_somewhere() -> None:
    assert check_links.broken_in_sources(check_links.sources()) == []


def test_broken_links_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_links, "ROOT", tmp_path)
    (tmp_path / "other.md").write_text("# A heading, with `code`\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md#a-heading-with-code) [b](other.md#no) [c](gone.md) [d](#here) [e](https://a.b)\n## Here\n"
    )
    found = check_links.broken_in_sources([page])
    assert found == ["page.md: other.md#no names no heading of other.md", "page.md: gone.md is not there"]
    (tmp_path / "index.html").write_text(
        '<h1 id="top"></h1><a href="#top"></a><a href="#no"></a><a href="gone/"></a><script src="https://cdn/x.js">'
    )
    found = check_links.broken_in_site(tmp_path)
    assert found == [
        "index.html: loads https://cdn/x.js from elsewhere",
        "index.html: #no names no anchor",
        "index.html: gone/ is not there",
    ]


@pytest.mark.filterwarnings("ignore")
def test_the_tables_of_supported_models_are_those_of_the_tests() -> None:
    text = supported_models.PAGE.read_text()
    assert supported_models.page(text) == text, "run python tools/supported_models.py"


def test_the_settings_are_those_of_the_paper() -> None:
    rows = [[name, str(s.strength), str(s.dropout), str(s.drop_edge)] for name, s in BUFFER.items()]
    headers = ["graph", "`strength`", "`dropout`", "`drop_edge`"]
    assert markdown_table(headers, rows) in (DOCS / "settings.md").read_text()


def test_every_section_of_the_report_is_explained() -> None:
    template = (ROOT / "src" / "aggbuffer" / "report" / "run.html.jinja").read_text()
    sections = re.findall(r'<h2 id="\w+">([^<{]+)</h2>', template)
    page = (DOCS / "report.md").read_text()
    assert len(sections) > 5
    assert [name for name in sections if f"## {name}\n" not in page] == []


def test_the_numbers_of_the_cold_start_page_are_those_of_the_results() -> None:
    page, results = (DOCS / "cold-start.md").read_text(), (ROOT / "paper" / "README.md").read_text()
    rows = re.findall(r"^\| (Cora|CiteSeer|Chameleon) +\|(.*)\|$", page, flags=re.MULTILINE)
    assert len(rows) == 3
    bars = dict(re.findall(r"^\| (\w+) +\| (.*) \|$", results.split("GCN_B reference − GCN")[0], flags=re.MULTILINE))
    for graph, cells in rows:
        tail, with_tail, tail_change, none, with_none, none_change = (cell.strip() for cell in cells.split("|"))
        assert tail_change in bars[graph]
        assert none_change in bars[graph]
        for title, before, after in (("Tail nodes", tail, with_tail), ("0 % of the edges", none, with_none)):
            table = results[results.index(f"| {title}") :].split("\n\n")[0].splitlines()
            column = [cell.strip() for cell in table[0].split("|")].index(graph)
            lines = {line.split("|")[1].strip(): line.split("|")[column] for line in reversed(table[2:])}
            assert before in lines["GCN"]
            assert after in lines["GCN_B, paper's text"]


def test_the_reference_names_everything_public() -> None:
    text = "".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    documented = set(re.findall(r"^::: ([\w.]+)$", text, flags=re.MULTILINE))
    public = [(aggbuffer, PUBLIC), (aggbuffer.interop, ["load_reference"])]
    for name in MODULES:
        assert f"aggbuffer.{name}" in text
        public.append((getattr(aggbuffer, name), getattr(getattr(aggbuffer, name), "__all__", [])))
    for owner, names in public:
        for name in names:
            thing = getattr(owner, name)
            if callable(thing):
                home = thing.__module__
                assert f"{home}.{thing.__qualname__}" in documented or home in documented, name
            else:
                assert f"`{owner.__name__}.{name}`" in text
    for path in documented:
        module, _, name = path.rpartition(".")
        assert hasattr(importlib.import_module(module), name) or importlib.import_module(path)


@pytest.mark.slow
def test_the_site_builds_strictly_and_needs_no_network(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert check_links.broken_in_site(tmp_path / "site") == []
    reference = (tmp_path / "site" / "api" / "index.html").read_text()
    assert all(f".{name}" in reference for name in PUBLIC)
    works = (tmp_path / "site" / "how-it-works" / "index.html").read_text()
    assert '<figure class="drawing"><svg' in works
