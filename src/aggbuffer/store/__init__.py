"""Graphs that do not fit into memory: a folder of memory-mapped arrays, built from files of any size."""

from aggbuffer.store.build import build
from aggbuffer.store.graph import GraphStore, check, is_store, open
from aggbuffer.store.layout import Meta

__all__ = ["GraphStore", "Meta", "build", "check", "is_store", "open"]
