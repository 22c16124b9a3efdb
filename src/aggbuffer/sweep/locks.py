"""Locks on files that the system itself releases when their holder dies, however it dies."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from aggbuffer.errors import SearchError

try:
    import fcntl
except ImportError as error:  # Windows
    raise SearchError(
        "A search needs locks that this system lacks (fcntl); run it on Linux or macOS, or with WSL."
    ) from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep every other process, and every other user of this function, out; waits for whoever is in."""
    with path.open("ab") as file:
        _lock(file, path, fcntl.LOCK_EX)
        yield


def hold(path: Path) -> IO[bytes]:
    """Hold a file of one's own until it is closed, or this process ends."""
    file = path.open("ab")
    _lock(file, path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return file


def is_held(path: Path) -> bool:
    """Whether the process that holds a file is alive."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _lock(file: IO[bytes], path: Path, kind: int) -> None:
    try:
        fcntl.flock(file, kind)
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise SearchError(
                f"{path.parent} is on a file system without locks; use a folder on another one, or PostgreSQL."
            ) from error
        raise
