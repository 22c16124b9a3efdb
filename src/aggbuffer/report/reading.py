"""Records of runs, read back from files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aggbuffer.errors import BufferFileError

FORMAT = "aggbuffer-run-2"
_OLDER = "aggbuffer-run-1"
_NAME = "run.json"
_EXPECTED = "expected a run.json that aggbuffer wrote, or a folder that holds one"

# What every record has, and what kind of value it is.
_PARTS: dict[str, type | tuple[type, ...]] = {
    "title": str,
    "description": str,
    "created": str,
    "graph": dict,
    "base": dict,
    "buffer": dict,
    "fit": dict,
    "comparison": (dict, type(None)),
    "diagnosis": (dict, type(None)),
    "versions": dict,
    "machine": dict,
    "load_code": str,
}
_SINCE_2 = ("edge_loss", "held_out", "bins", "flips", "terms", "inference")
_NOT_THEN = {"missing": "The record was written by an older version of aggbuffer, which did not measure this."}


def record_file(path: Path) -> Path:
    """Where the record of a run is: the path itself, or the file in that folder."""
    return path / _NAME if path.is_dir() else path


def read_record(path: Path) -> dict[str, Any]:
    """The record of a run.

    Args:
        path: Of a ``run.json``, whatever its name, or of a folder that holds one.

    Raises:
        BufferFileError: If there is none, or it is damaged or something else.
    """
    file = record_file(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        what = f"The folder {path} holds no {_NAME}" if path.is_dir() else f"{path} does not exist"
        raise BufferFileError(f"{what}; {_EXPECTED}.") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise BufferFileError(f"{file} cannot be read ({reason}); {_EXPECTED}.") from error
    try:
        record = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise BufferFileError(f"{file} is no JSON, or was cut off; {_EXPECTED}.") from error
    return checked(record, str(file))


def checked(record: object, name: str) -> dict[str, Any]:
    """A record that a page can be made of, with what older versions did not measure marked as missing.

    Raises:
        BufferFileError: If it is none.
    """
    found = record.get("format") if isinstance(record, dict) else None
    if not isinstance(record, dict) or found not in (FORMAT, _OLDER):
        newer = isinstance(found, str) and found.startswith("aggbuffer-run-")
        what = f"is of the format {found!r}, which this version does not know" if newer else "holds no record of a run"
        raise BufferFileError(f"{name} {what}; {_EXPECTED}.")
    for part, kind in _PARTS.items():
        if not isinstance(record.get(part, False), kind):
            raise BufferFileError(f"The record in {name} has no {part!r}, or a damaged one; write it again.")
    if found == FORMAT:
        if lacking := next((part for part in _SINCE_2 if part not in record), None):
            raise BufferFileError(f"The record in {name} has no {lacking!r}, or a damaged one; write it again.")
        return record
    return _upgraded(record)


def _upgraded(record: Mapping[str, Any]) -> dict[str, Any]:
    later: dict[str, Any] = dict.fromkeys(_SINCE_2, _NOT_THEN)
    return {**record, **later, "edge_loss": 0.5}
