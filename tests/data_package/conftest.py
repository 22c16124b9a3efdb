"""The folder of benchmark files that developers and CI have beside the project."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    shared = os.environ.get("AGGBUFFER_SHARED") or Path(__file__).parents[2].parent / "shared"
    folder = Path(shared) / "data"
    if not folder.is_dir():
        pytest.skip(f"there are no benchmark files at {folder}")
    return folder
