"""Measurements of the library itself; the paper's are in ``paper/``."""
