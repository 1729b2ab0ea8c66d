"""Ops of recommendation models: hashes, trees, click-through rates."""
