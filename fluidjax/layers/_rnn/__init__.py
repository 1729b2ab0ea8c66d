"""Rooms behind ``layers.rnn``."""
