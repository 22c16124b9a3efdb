"""Beyond one pass over one graph in memory: mini-batches, and inference layer by layer.

``source``: what a graph has to offer, in memory or not. ``hashing``: randomness that depends on the numbers of nodes
and edges alone. ``sampler`` and ``batch``: sampled neighbourhoods. ``views`` and ``passes``: the model on one of them.
``training``: the epochs. ``operators``, ``replay`` and ``layerwise``: a model on the whole graph, a layer at a time.
``ranks``: what several processes must agree on.
"""
