"""Rooms behind ``layers.loss`` and ``layers.nn``."""
