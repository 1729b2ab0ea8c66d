"""Recorded sequences that serve inputs of several sizes: one block with room for more in the dims that change."""
