"""Files on disk that are either whole and as expected, or not there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from aggbuffer.errors import DataUnavailableError

CHUNK = 1 << 20
RECORD = "SHA256SUMS"


def cache_folder() -> Path:
    """Where downloads go unless told otherwise: ``$AGGBUFFER_DATA``, else ``~/.cache/aggbuffer``."""
    return Path(os.environ.get("AGGBUFFER_DATA") or Path.home() / ".cache" / "aggbuffer")


def write_checked(target: Path, chunks: Iterable[bytes], expected: str | None) -> None:
    """Write a file so that its name appears only once its content is complete and verified.

    Args:
        target: where to; its folder is made.
        chunks: the content.
        expected: its SHA-256, or None if nobody knows it yet.

    Raises:
        DataUnavailableError: if the content hashes to something else; nothing is left behind.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    digest = hashlib.sha256()
    try:
        with partial.open("wb") as file:
            for chunk in chunks:
                digest.update(chunk)
                file.write(chunk)
        if expected is not None and digest.hexdigest() != expected:
            raise DataUnavailableError(
                f"{target.name} arrived with SHA-256 {digest.hexdigest()[:12]}…, {expected[:12]}… was expected"
            )
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def chunks_of(path: Path) -> Iterator[bytes]:
    """The content of a file, piece by piece."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    for chunk in chunks_of(path):
        digest.update(chunk)
    return digest.hexdigest()


def is_complete(folder: Path, files: Iterable[str]) -> bool:
    """Whether every file is there."""
    return all((folder / file).is_file() for file in files)


def record(folder: Path, files: Iterable[str]) -> None:
    """Write down what the files hash to, in the format of ``sha256sum``."""
    lines = "".join(f"{sha256(folder / file)}  {file}\n" for file in files)
    write_checked(folder / RECORD, [lines.encode()], None)


def verify(folder: Path, files: Mapping[str, str | None]) -> None:
    """Compare files with their known hashes, and those without one with what was recorded, if anything.

    Raises:
        DataUnavailableError: naming the first file that differs.
    """
    recorded: dict[str, str] = {}
    if (folder / RECORD).is_file():
        lines = (folder / RECORD).read_text(encoding="utf-8").splitlines()
        recorded = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    for file, known in files.items():
        expected = known or recorded.get(file)
        if expected is not None and (found := sha256(folder / file)) != expected:
            raise DataUnavailableError(
                f"{folder / file} is damaged or another version: its SHA-256 is {found[:12]}…, "
                f"{expected[:12]}… was expected; remove it and get the graph again."
            )
