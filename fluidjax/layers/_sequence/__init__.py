"""Sequence layers: what ``layers.sequence_lod`` and ``layers.nn`` re-export."""
