"""A pytest plugin for CI: says how many tests used ../shared, and fails the run if it is there and they were skipped.

Locally a missing ../shared is a reason to skip; in CI a skipped test looks like a passed one.
"""

from pathlib import Path

import pytest

FIXTURES = {"shared", "shared_data"}
MARK = ("needs", "shared")
SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_runtest_setup(item: pytest.Item) -> None:
    if FIXTURES & set(getattr(item, "fixturenames", ())):
        item.user_properties.append(MARK)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts = {outcome: _count(terminalreporter, outcome) for outcome in ("passed", "failed", "skipped")}
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    terminalreporter.write_line(f"tests that use ../shared: {told}{'' if SHARED.is_dir() else ' (it is not here)'}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if SHARED.is_dir() and reporter is not None and _count(reporter, "skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _count(reporter: pytest.TerminalReporter, outcome: str) -> int:
    reports = reporter.stats.get(outcome, [])
    return sum(1 for report in reports if MARK in map(tuple, report.user_properties))
