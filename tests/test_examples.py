"""Every example runs as a reader would run it; what it prints is checked where it is certain."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"

CERTAIN = {
    "cold_start.py": [r"\d+ nodes arrive", r"with at most 0 links: [\d.]+% -> [\d.]+%"],
    "directed_weighted_graph.py": [r"counts edges: .* -> [\d.]+%", r"sums weights: .* -> [\d.]+%"],
    "hand_written_model.py": [
        "found first: reads 32, its buffer adds 32 columns",
        "as the base, to the bit: True",
        "it is the very object: True",
    ],
    "multi_label.py": ["task: multilabel", r"macro-F1 [\d.]+% -> [\d.]+%"],
    "pretrained_pyg_model.py": [r"\| overall", "the same answers after saving and loading: True"],
    "serving.py": ["the server knows aggbuffer or PyG: False", "the server's answers are the model's: True"],
}


def test_every_example_is_known_here_and_on_its_page() -> None:
    there = {path.name for path in EXAMPLES.glob("*.py")}
    assert there == set(CERTAIN)
    assert there == set(re.findall(r"\]\((\w+\.py)\)", (EXAMPLES / "README.md").read_text()))


LONGEST = {"cold_start.py"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONGEST else []) for name in sorted(CERTAIN)]
)
def test_runs_and_says_what_is_certain(name: str, tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, EXAMPLES / name], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    for expected in CERTAIN[name]:
        assert re.search(expected, done.stdout), done.stdout
