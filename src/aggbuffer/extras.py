"""Packages that not everyone needs."""

from __future__ import annotations

import importlib.util

from aggbuffer.errors import MissingPackageError


def require(package: str, extra: str, purpose: str) -> None:
    """Refuse to go on without an optional package.

    Args:
        package: What is imported.
        extra: Of this library, that installs it.
        purpose: What needs it, to begin the sentence with.

    Raises:
        MissingPackageError: If it is not installed, naming the extra.
    """
    if importlib.util.find_spec(package) is None:
        raise MissingPackageError(
            f"{purpose} needs {package}, which is not installed; run pip install 'aggbuffer[{extra}]'."
        )
