"""What a notebook shows, in one that is really run."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

CELLS = [
    "%matplotlib inline\n"
    "from helpers_fit import base, community_graph\n"
    "import aggbuffer as ab\n"
    "data = community_graph()\n"
    "before = ab.evaluate(base(), data)\n"
    "diagnosis = ab.diagnose(base(), data)\n"
    "model = ab.attach(base(), data)\n"
    "result = ab.fit(model, data, max_epochs=5)\n"
    "comparison = ab.compare(before, ab.evaluate(model, data))",
    "before",
    "comparison",
    "diagnosis",
    "result",
    "before.plot();",
    "comparison.plot();",
    "diagnosis.plot();",
    "result.plot();",
]


@pytest.fixture(scope="module")
def outputs() -> list[list[Any]]:
    """What each cell shows."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    here = {"metadata": {"path": str(Path(__file__).parent)}}
    nbclient.NotebookClient(notebook, timeout=240, kernel_name="python3", resources=here).execute()
    return [cell.outputs for cell in notebook.cells]


def test_fitting_leaves_no_progress_behind(outputs: list[list[Any]]) -> None:
    assert "epoch" not in str(outputs[0])


@pytest.mark.parametrize(
    ("cell", "words"),
    [(1, "heterophilous"), (2, "95 % interval"), (3, "A buffer is"), (4, "was best on val_loss")],
)
def test_each_object_shows_a_table_and_a_plot(outputs: list[list[Any]], cell: int, words: str) -> None:
    (shown,) = outputs[cell]
    assert words in shown.data["text/html"]
    assert "<table>" in shown.data["text/html"]
    (picture,) = re.findall(r'<img alt="[^"]+" src="data:image/png;base64,([^"]+)"/>', shown.data["text/html"])
    assert base64.b64decode(picture)[1:4] == b"PNG"


@pytest.mark.parametrize("cell", [5, 6, 7, 8])
def test_each_object_shows_one_plot(outputs: list[list[Any]], cell: int) -> None:
    (shown,) = outputs[cell]
    assert len(shown.data["image/png"]) > 5_000
