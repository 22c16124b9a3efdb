"""GraphPatcher: a frozen GNN is helped at every node by virtual neighbours that a generator makes up.

``local``: what a two-layer GCN answers at anchors whose neighbourhoods change. ``model``: the generator, and the GNN
with its help. ``training``: how the generator learns.
"""

from paper.methods.graphpatcher.training import train

__all__ = ["train"]
