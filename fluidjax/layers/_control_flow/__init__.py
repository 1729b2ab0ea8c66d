"""Rooms behind ``layers.control_flow``."""
