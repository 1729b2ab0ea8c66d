"""Peers side by side in one run: fluidjax, the same step as hand-written JAX, and Paddle 1.8.5 where it is found."""
