"""What makes training fast, in one place and optional: the same numbers as the plain path, sooner.

``sparse``: products with sparse matrices whose transpose is kept. ``views``: the graph sorted once, and what is left
of it after DropEdge without sorting again. ``layers``: convolutions over such views. ``runner``: the passes of a
training step, with what never changes computed once.
"""
