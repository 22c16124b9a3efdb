"""What every command shares: where output goes, how failures are told, and the exit codes."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TextIO

import typer
from rich.console import Console

from aggbuffer.errors import AggBufferError, ConfigError

FAILED, USAGE, INTERRUPTED = 1, 2, 130


class Session:
    """One command at work.

    Attributes:
        as_json: Whether standard output is for one JSON document alone.
        quiet: Whether to leave out what is merely nice to know.
        interrupted: Finds the words for Ctrl-C: what was kept, and how to go on.
        rank: This process's number among those of a run.
        out: For results.
        err: For all else.
    """

    def __init__(self, as_json: bool, quiet: bool) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.as_json, self.quiet = as_json, quiet or self.rank > 0
        self.interrupted: Callable[[], str] = lambda: "Stopped; nothing was written."
        self.out, self.err = (Console(file=self._only(stream), highlight=False) for stream in (sys.stdout, sys.stderr))

    def _only(self, stream: TextIO) -> TextIO:
        """Of several processes that torchrun has started, the first alone has something to say."""
        return open(os.devnull, "w", encoding="utf-8") if self.rank > 0 else stream

    def say(self, told: str) -> None:
        """Tell what is known so far, beside the results."""
        if not self.quiet:
            self.err.print(told, markup=False)
            self.err.print()

    @contextlib.contextmanager
    def busy(self, told: str) -> Iterator[None]:
        """Tell on a terminal what takes its time, until it is done."""
        if self.quiet or not sys.stderr.isatty() or not self.err.is_interactive:
            yield
            return
        with self.err.status(told, spinner="line"):
            yield

    def show(self, *parts: Any) -> None:
        """Print parts of the result for a person, with a blank line between two."""
        if not self.as_json:
            for i, part in enumerate(parts):
                if i > 0:
                    self.out.print()
                self.out.print(part, markup=False)

    def show_lines(self, lines: str) -> None:
        """Print code and paths, which are there to be copied: no line is wrapped."""
        if not self.as_json:
            self.out.print(lines, markup=False, soft_wrap=True)

    def document(self, value: Any) -> None:
        """Print the result for a machine."""
        if self.as_json:
            from aggbuffer.report.run import json_ready

            self.out.file.write(json.dumps(json_ready(value), indent=2, allow_nan=False) + "\n")


@contextlib.contextmanager
def session(*, as_json: bool = False, quiet: bool = False, debug: bool = False) -> Iterator[Session]:
    """Do a command's work inside; whatever goes wrong becomes one line on standard error and an exit code.

    With ``as_json``, whatever else writes to standard output (a model's own code may) goes to standard error.
    """
    current = Session(as_json, quiet)
    with contextlib.ExitStack() as stack:
        if as_json:
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        stack.enter_context(_log_to_stderr(current.quiet))
        try:
            yield current
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            current.err.show_cursor()  # a second Ctrl-C may have come before a display could do so
            # Whoever reads it elsewhere than on a terminal gets it in one line.
            current.err.print(f"\n{current.interrupted()}", markup=False, soft_wrap=not current.err.is_terminal)
            raise typer.Exit(INTERRUPTED) from None
        except AggBufferError as error:
            if getattr(error, "speaker", 0) != current.rank:
                raise typer.Exit(FAILED) from None
            fail(str(error), USAGE if isinstance(error, ConfigError) else FAILED, debug)
        except Exception as error:
            reason = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
            fail(f"internal error ({reason}); run again with --debug for the details.", FAILED, debug)


def fail(told: str, code: int, debug: bool = False) -> NoReturn:
    """End the command with one line on standard error, after the traceback for whoever debugs."""
    if debug:
        traceback.print_exc()
    print("Error: " + " ".join(told.split()), file=sys.stderr)
    raise typer.Exit(code)


class _CurrentStderr(logging.Handler):
    """Writes to whatever standard error is by then: above a live display, while there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


@contextlib.contextmanager
def _log_to_stderr(quiet: bool) -> Iterator[None]:
    logger = logging.getLogger("aggbuffer")
    handler, level = _CurrentStderr(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING if quiet else logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
