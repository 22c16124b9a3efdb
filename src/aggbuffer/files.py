"""Files that are either whole or not there."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from aggbuffer.errors import BufferFileError


def checked_path(path: object) -> Path:
    """``path`` as a path.

    Raises:
        BufferFileError: If it is none.
    """
    if not isinstance(path, str | os.PathLike):
        raise BufferFileError(f"The path is a {type(path).__name__}; expected a string or a pathlib.Path.")
    return Path(path)


def write_bytes(content: bytes, path: str | Path) -> None:
    """Write a file in one step: whoever reads it sees the old content or the new, never a part.

    Raises:
        BufferFileError: If the folder does not exist or cannot be written to.
    """
    path = checked_path(path)
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = Path(file.name)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BufferFileError(
            f"{path} cannot be written ({reason}); name a file in a folder you can write to."
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_json(value: Any, path: str | Path) -> None:
    """Write a JSON document in one step."""
    write_bytes((json.dumps(value, indent=1, allow_nan=False) + "\n").encode(), path)


def write_safetensors(tensors: Mapping[str, Tensor], path: str | Path, metadata: Mapping[str, str]) -> None:
    """Write named tensors and text in one step, as one safetensors file."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_bytes(save(contiguous, metadata=dict(metadata)), path)
