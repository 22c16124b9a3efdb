"""Graphs to work on: the demonstration graph, a user's own files, and the paper's benchmarks."""

from aggbuffer.data.catalogue import BENCHMARKS, Benchmark, find
from aggbuffer.data.demo import DEMO_DESCRIPTION, demo_graph
from aggbuffer.data.fetch import available, get, load
from aggbuffer.data.files import read_graph
from aggbuffer.data.splits import random_masks

__all__ = [
    "BENCHMARKS",
    "DEMO_DESCRIPTION",
    "Benchmark",
    "available",
    "demo_graph",
    "find",
    "get",
    "load",
    "random_masks",
    "read_graph",
]
