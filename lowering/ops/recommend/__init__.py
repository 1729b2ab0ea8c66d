"""Ops for recommendation models: hashes, trees, click-through rates."""
