"""Amounts of memory as people write them."""

from __future__ import annotations

import re

from aggbuffer.errors import ConfigError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_LEAST = 2**20


def in_bytes(size: int | float | str, name: str = "memory") -> int:
    """``"3GiB"``, ``"500 MB"`` or a number of bytes, as a number of bytes.

    Raises:
        ConfigError: If it is none of these, or less than 1 MiB.
    """
    if isinstance(size, str):
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?I?)B?\s*", size.upper())
        if found is None or found[2] not in _UNITS:
            raise ConfigError(f"{name} is {size!r}; expected an amount such as 3GiB or 500MB.")
        size = float(found[1]) * _UNITS[found[2]]
    if isinstance(size, bool) or not isinstance(size, int | float):
        raise ConfigError(f"{name} is a {type(size).__name__}; expected a number of bytes or an amount such as 3GiB.")
    if not size >= _LEAST:
        raise ConfigError(f"{name} is {size:,.0f} bytes; expected at least 1 MiB.")
    return int(size)


def as_text(count: int) -> str:
    """``3221225472`` as ``3.0 GiB``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
