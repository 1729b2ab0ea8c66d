"""Rooms behind ``layers.detection``."""
