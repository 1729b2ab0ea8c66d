"""The tape, and the backward pass over it."""
