"""What README and docs tell the reader to run, runs; what they show is what was measured."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch_geometric.nn import GCN

from aggbuffer.data import demo_graph
from paper import label_free, readme_figure

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def shortened(code: str) -> str:
    """The block with few epochs: that it runs is the point here, not how well it ends."""
    return re.sub(r"ab\.fit\(model, data", "ab.fit(model, data, max_epochs=3", code)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.filterwarnings("ignore")
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = demo_graph()
    torch.manual_seed(0)
    names = {"data": data, "gnn": GCN(data.num_features, 8, 2, 10).eval()}
    for code in blocks(page, "python"):
        exec(compile(shortened(code), str(page), "exec"), names)


def test_readme_commands_run(tmp_path: Path) -> None:
    """Line after line, as a reader would; ``make`` targets need only exist, as CI runs them."""
    makefile = (ROOT / "Makefile").read_text()
    for block in blocks(ROOT / "README.md", "sh"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words[0] == "make":
                assert re.search(rf"^{words[1]}:", makefile, flags=re.MULTILINE)
                continue
            assert words[0] == "aggbuffer"
            if words[1] == "fit":
                words += ["--max-epochs", "3"]
            done = subprocess.run(
                [sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True, timeout=240
            )
            assert done.returncode == 0, f"{line}\n{done.stderr}"


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_figure_is_drawn_from_the_committed_results() -> None:
    assert readme_figure.FIGURE.read_text() == readme_figure.draw()


def test_the_label_free_table_is_that_of_the_committed_results() -> None:
    assert label_free.table() in (ROOT / "docs" / "label-free.md").read_text()
