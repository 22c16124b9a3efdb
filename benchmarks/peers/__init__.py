"""The contenders, each a process of its own: ``python -m benchmarks.peers.NAME CASE_FILE TASK``."""
