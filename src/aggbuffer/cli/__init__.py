"""The command line: parse, call the library, print.

Nothing here imports torch before a command runs, so that ``--help`` answers at once.
"""

from aggbuffer.cli.app import app, main

__all__ = ["app", "main"]
