"""Sequences: what ``layers.sequence_lod`` and ``layers.nn`` hand on."""
