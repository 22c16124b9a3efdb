"""What makes training fast, in one place and optional: the same numbers as the plain path, sooner.

``csr``: products with sparse matrices whose transpose is kept. ``rates``: when they are the faster ones. ``features``:
the constant node features, multiplied by either. ``views``: the graph sorted once, and what is left
of it after DropEdge without sorting again. ``layers``: convolutions over such views. ``runner``: the passes of a
training step, with what never changes computed once.
"""
