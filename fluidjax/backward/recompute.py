"""Recompute: keep only checkpoints of the forward pass and compute the rest again in the backward pass."""
