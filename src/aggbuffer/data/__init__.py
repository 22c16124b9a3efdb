"""Graphs to work on: the demonstration graph, a user's own files, and the paper's benchmarks."""

from aggbuffer.data.demo import DEMO_DESCRIPTION, demo_graph
from aggbuffer.data.files import read_graph

__all__ = ["DEMO_DESCRIPTION", "demo_graph", "read_graph"]
