"""Amounts of memory."""

from __future__ import annotations

from aggbuffer.errors import ConfigError
from aggbuffer.text import bytes_of

_LEAST = 2**20


def in_bytes(size: int | float | str) -> int:
    """``"3GiB"`` or a number of bytes, as a number of bytes.

    Raises:
        ConfigError: If it is neither, or less than 1 MiB.
    """
    if isinstance(size, str):
        size = bytes_of(size)
    if isinstance(size, bool) or not isinstance(size, int | float):
        raise ConfigError(f"memory is a {type(size).__name__}; expected a number of bytes or an amount such as 3GiB.")
    if not size >= _LEAST:
        raise ConfigError(f"memory is {size:,.0f} bytes; expected at least 1 MiB.")
    return int(size)


def as_text(count: int) -> str:
    """``3221225472`` as ``3.0 GiB``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
