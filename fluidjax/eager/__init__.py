"""Eager mode: variables with values, the tracer that runs ops on them, and the tape used to compute gradients."""
