"""``python -m aggbuffer`` is ``aggbuffer``."""

from aggbuffer.cli import main

main()
