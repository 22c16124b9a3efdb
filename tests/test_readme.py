"""What README tells the reader to run, runs; what it and docs show is what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_geometric.nn import GCN

from aggbuffer.data import demo_graph
from pages import README, ROOT, blocks, commands, run_command, shortened
from paper import label_free, readme_figure


@pytest.mark.filterwarnings("ignore")
def test_python_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = demo_graph()
    torch.manual_seed(0)
    names = {"data": data, "gnn": GCN(data.num_features, 8, 2, 10).eval()}
    for code in blocks(README, "python"):
        exec(compile(shortened(code), str(README), "exec"), names)


def test_readme_commands_run(tmp_path: Path) -> None:
    """Line after line, as a reader would; ``make`` targets need only exist, as CI runs them."""
    for block in blocks(README, "sh"):
        for words in commands(block):
            run_command(words, tmp_path)


def test_the_figure_is_drawn_from_the_committed_results() -> None:
    assert readme_figure.FIGURE.read_text() == readme_figure.draw()


def test_the_label_free_table_is_that_of_the_committed_results() -> None:
    assert label_free.table() in (ROOT / "docs" / "label-free.md").read_text()
