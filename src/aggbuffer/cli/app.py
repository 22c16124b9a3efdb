"""The commands by name."""

from __future__ import annotations

from typing import Annotated

import typer

from aggbuffer.cli.commands import data, demo, fit, inspect, judge
from aggbuffer.version import __version__

app = typer.Typer(
    name="aggbuffer",
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
app.command("inspect", epilog=inspect.EXAMPLE)(inspect.inspect)
app.add_typer(data.app, name="data")


def main() -> None:
    """Run the command line; the exit code is 0, 1 if the work failed, 2 for wrong usage, 130 after Ctrl-C."""
    app()
