"""The commands by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from aggbuffer.cli.commands import data, demo, fit, inspect, judge, report, store, sweep
from aggbuffer.cli.session import USAGE, fail
from aggbuffer.version import __version__

# Some versions of typer bring a click of their own, so its classes are found by their names.
_UsageError: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if issubclass(kind, Exception) and kind.__name__ == "UsageError"
)


class _Commands(TyperGroup):
    """Tells wrong usage as every other failure is told: in one line on standard error."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        with _usage_in_one_line():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _usage_in_one_line():
            return super().invoke(ctx)


@contextmanager
def _usage_in_one_line() -> Iterator[None]:
    try:
        yield
    except _UsageError as error:
        problem: Any = error
        if type(error).__name__ == "NoArgsIsHelpError":  # no failure: it shows the help
            raise
        where = f" See {problem.ctx.command_path} --help." if problem.ctx else ""
        fail(f"{problem.format_message().rstrip('.')}.{where}", USAGE)


app = typer.Typer(
    name="aggbuffer",
    cls=_Commands,
    help="Edge robustness for trained graph neural networks, by aggregation buffers.",
    epilog="Start with: aggbuffer demo",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"aggbuffer {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Edge robustness for trained graph neural networks, by aggregation buffers."""


app.command("demo", epilog=demo.EXAMPLE)(demo.demo)
app.command("fit", epilog=fit.EXAMPLE)(fit.fit)
app.command("evaluate", epilog=judge.EVALUATE_EXAMPLE)(judge.evaluate)
app.command("diagnose", epilog=judge.DIAGNOSE_EXAMPLE)(judge.diagnose)
app.command("report", epilog=report.EXAMPLE)(report.report)
app.command("inspect", epilog=inspect.EXAMPLE)(inspect.inspect)
app.command("sweep", epilog=sweep.EXAMPLE)(sweep.sweep)
app.add_typer(data.app, name="data")
app.add_typer(store.app, name="store")


def main() -> None:
    """Run the command line; the exit code is 0, 1 if the work failed, 2 for wrong usage, 130 after Ctrl-C."""
    # Before torch is loaded: where other programs keep the cores busy, threads that spin while they wait for each other
    # make a fit on a small graph many times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    app()
