"""A real browser, and records of runs to look at in it."""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

from aggbuffer import FitConfig
from aggbuffer.data import DEMO_DESCRIPTION, demo_graph
from aggbuffer.demo import load_code, train_base
from aggbuffer.report import fit_and_judge, render, render_several

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Record = dict[str, Any]

QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def small(task: str = "multiclass") -> Data:
    """Three linked classes, with labels of the asked kind and masks."""
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(90) % 3
    x = torch.nn.functional.one_hot(y, 4).float() + 0.8 * torch.randn(90, 4, generator=draw)
    ends = torch.randint(90, (2, 600), generator=draw)
    ends = torch.unique(ends[:, (y[ends[0]] == y[ends[1]]) & (ends[0] < ends[1])], dim=1)
    part = torch.rand(90, generator=draw)
    masks = {"train_mask": part < 0.3, "val_mask": (part >= 0.3) & (part < 0.6), "test_mask": part >= 0.6}
    labels = {
        "multiclass": y,
        "multilabel": torch.stack([y == 0, y != 1, x[:, 0] > 0], dim=1).float(),
        "regression": torch.stack([x[:, 0] + y, x[:, 1] - y, x[:, 2]], dim=1),
    }[task]
    return Data(x=x, y=labels, edge_index=torch.cat([ends, ends.flip(0)], dim=1), **masks)


def fitted(folder: Path, data: Data, **options: Any) -> Record:
    """The record of a short fit on a small graph."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        gnn = GCN(4, 8, 2, 3)
    config = options.pop("config", FitConfig(max_epochs=40, seed=7))
    run = fit_and_judge(gnn, data, folder / "x.aggbuffer.safetensors", config=config, progress=False, **options)
    return run.to_dict(title="A <b>title</b> & more", description="What it is.", load_code='ab.load(gnn, "x")')


@pytest.fixture(scope="session")
def shared_record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return fitted(tmp_path_factory.mktemp("run"), small())


@pytest.fixture
def record(shared_record: Record) -> Record:
    """Of a short fit on a small graph; free to change."""
    return copy.deepcopy(shared_record)


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
def several_page(demo_record: Record, shared_record: Record, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "several.html"
    path.write_text(render_several([("one", demo_record), ("two", shared_record), ("three", shared_record)]))
    return path


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One headless Chromium for all tests."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as started:
        found = shutil.which("chromium") or started.chromium.executable_path
        if not Path(found).exists():
            pytest.skip("chromium is not installed")
        running = started.chromium.launch(executable_path=found, args=QUIET)
        yield running
        running.close()


Opener = Callable[..., Any]


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
