"""Tensors: rooms behind ``layers.tensor`` and ``layers.nn``."""
