"""The report of a run: one HTML page that needs nothing but a browser.

A name is imported when it is first used, so that drawing a record again need not wait for PyG.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aggbuffer.report.page import render, render_several, write_report
    from aggbuffer.report.reading import read_record
    from aggbuffer.report.run import Run, fit_and_judge, json_ready

__all__ = ["Run", "fit_and_judge", "json_ready", "read_record", "render", "render_several", "write_report"]

_HOME = {
    "page": ("render", "render_several", "write_report"),
    "reading": ("read_record",),
    "run": ("Run", "fit_and_judge", "json_ready"),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
