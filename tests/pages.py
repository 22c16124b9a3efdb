"""Runs what pages tell their readers to run.

A block fenced as ``python`` or ``sh`` and nothing more runs, in the order of the page. One that cannot run here says so
to the reader, by a title that starts with "Not run".
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
import sys
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import pytest

from aggbuffer import demo

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
_FENCE = re.compile(r"^```(python|sh)([^\n]*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r' title="Not run: [^"]+"')


@dataclass(frozen=True)
class CodeBlock:
    """A fenced block of Python or shell."""

    language: str
    attributes: str
    code: str

    @property
    def runs(self) -> bool:
        if self.attributes and not _NOT_RUN.fullmatch(self.attributes):
            raise ValueError(f'a fence says {self.attributes!r}; expected nothing, or title="Not run: <why>"')
        return not self.attributes


def code_blocks(page: Path) -> list[CodeBlock]:
    """All of a page's, in order."""
    return [CodeBlock(*found) for found in _FENCE.findall(page.read_text())]


def blocks(page: Path, language: str) -> list[str]:
    """Those of one language that run."""
    return [block.code for block in code_blocks(page) if block.language == language and block.runs]


def shortened(code: str) -> str:
    """The block with few epochs, and a search with few points: that it runs is the point here, not how well it ends."""
    code = re.sub(r"ab\.fit\(\w+, \w+", r"\g<0>, max_epochs=3", code)
    return re.sub(r'ab\.sweep\(\w+, \w+, "[\w-]+"', r'\g<0>, space={"strength": [1.0, 0.5]}, max_epochs=3', code)


def commands(code: str) -> list[list[str]]:
    """The words of every line of a shell block, continued lines joined."""
    lines = code.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run_command(words: list[str], folder: Path) -> str:
    """What ``aggbuffer`` or ``python`` prints, run as a reader would; of ``make``, that the target exists."""
    if words == [".", ".venv/bin/activate"]:
        return ""
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
        return ""
    assert words[0] in ("aggbuffer", "python"), words
    if words[:2] == ["aggbuffer", "fit"]:
        words = [*words, "--max-epochs", "3"]
    program = [sys.executable, *(["-m", "aggbuffer"] if words[0] == "aggbuffer" else [])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*program, *words[1:]], cwd=folder, capture_output=True, text=True, timeout=240, env=environment
    )
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stderr}"
    return done.stdout


def train_bases_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many pages begin by training the demonstration's GNN; each gets a copy of the same one."""
    monkeypatch.setattr(demo, "train_base", lambda data, seed=0: deepcopy(_trained(seed)))


@functools.cache
def _trained(seed: int) -> tuple[object, float]:
    from aggbuffer.data import demo_graph

    return _train_base(demo_graph(), seed)


_train_base = demo.train_base
