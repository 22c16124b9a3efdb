"""The report of a run: one HTML page that needs nothing but a browser."""

from aggbuffer.report.page import render, write_report
from aggbuffer.report.run import Run, fit_and_judge, json_ready

__all__ = ["Run", "fit_and_judge", "json_ready", "render", "write_report"]
