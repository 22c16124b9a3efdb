"""Where results are kept, and how two runners share the work: one file a unit, written whole or not at all."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aggbuffer.files import write_bytes
from paper.definitions import home
from paper.units import Unit

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Store:
    """Folders of results and of claims.

    Attributes:
        results: Committed: ``<table>/<dataset>/<method>[@variant]/<split>.json``.
        claims: Not committed: locks of the units that are being measured.
    """

    results: Path = _FOLDER / "results"
    claims: Path = _FOLDER / ".claims"

    def path(self, unit: Unit) -> Path:
        """The file of a unit."""
        return self.results / home(unit) / unit.dataset / unit.name / f"{unit.split}.json"

    def has(self, unit: Unit) -> bool:
        """Whether a unit has been measured."""
        return self.path(unit).exists()

    def read(self, unit: Unit) -> dict[str, Any] | None:
        """What was measured."""
        path = self.path(unit)
        return json.loads(path.read_text()) if path.exists() else None

    def write(self, unit: Unit, result: Mapping[str, Any]) -> None:
        """Keep what was measured."""
        path = self.path(unit)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(as_text(result).encode(), path)

    def all_splits(self, unit: Unit) -> dict[int, dict[str, Any]]:
        """What was measured of the same method and graph, by split."""
        found = self.path(unit).parent.glob("[0-9]*.json")
        return {int(path.stem): json.loads(path.read_text()) for path in sorted(found, key=lambda p: int(p.stem))}

    @contextmanager
    def claim(self, unit: Unit) -> Iterator[bool]:
        """Hold a unit while it is measured; False if someone else does.

        The lock is the kernel's: it goes with the process that holds it, however that ends, so none is ever stale.
        """
        path = self._claim(unit)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            held = _lock(descriptor)
            # The one who held it before may have removed the file that we opened.
            held = held and path.exists() and os.fstat(descriptor).st_ino == path.stat().st_ino
            try:
                yield held
            finally:
                if held:
                    path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)

    def is_claimed(self, unit: Unit) -> bool:
        """Whether someone is measuring a unit right now."""
        try:
            descriptor = os.open(self._claim(unit), os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            return not _lock(descriptor)
        finally:
            os.close(descriptor)

    def _claim(self, unit: Unit) -> Path:
        return self.claims / "+".join(self.path(unit).relative_to(self.results).with_suffix(".lock").parts)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def as_text(result: Mapping[str, Any]) -> str:
    """JSON with one line an entry, two levels deep: short, and a change of one score is a change of one line."""

    def level(values: Mapping[str, Any], depth: int) -> str:
        indent = " " * depth
        entries = []
        for key, value in values.items():
            nested = depth < 3 and isinstance(value, Mapping) and any(isinstance(v, Mapping) for v in value.values())
            told = level(value, depth + 1) if nested else json.dumps(value, ensure_ascii=False)
            entries.append(f"{indent}{json.dumps(key)}: {told}")
        return "{\n" + ",\n".join(entries) + "\n" + " " * (depth - 1) + "}"

    return level(result, 1) + "\n"
