"""Beyond one pass over one graph in memory: mini-batches, and inference layer by layer.

``source``: what a graph has to offer, in memory or not. ``hashing``: randomness that depends on the numbers of nodes
and edges alone. ``sampler`` and ``batch``: sampled neighbourhoods. ``views`` and ``passes``: the model on one of them.
``training``: the epochs. ``layerwise``: a model on the whole graph, a layer at a time, with ``replay`` for what is
between the layers, ``forms`` and ``operators`` for the layers, ``sweep`` for the chunks, and ``trial`` for what suits a
model.
``ranks``: what several processes must agree on.
"""
