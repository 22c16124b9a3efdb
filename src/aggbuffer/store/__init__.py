"""Graphs that do not fit into memory: a folder of memory-mapped arrays, built from files of any size."""

from aggbuffer.store.build import build
from aggbuffer.store.layout import Meta

__all__ = ["Meta", "build"]
