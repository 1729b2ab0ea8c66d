"""Sequences: rooms behind ``layers.sequence_lod`` and ``layers.nn``."""
