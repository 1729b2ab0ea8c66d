"""Losses: the layers that ``layers.loss`` and ``layers.nn`` re-export."""
