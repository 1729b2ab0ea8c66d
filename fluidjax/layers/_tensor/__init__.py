"""Tensors: what ``layers.tensor`` and ``layers.nn`` hand on."""
