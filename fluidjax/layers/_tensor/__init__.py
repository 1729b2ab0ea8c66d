"""Tensors: the layers that ``layers.tensor`` and ``layers.nn`` re-export."""
