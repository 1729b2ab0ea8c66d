"""Ops on variable-length sequences."""
