"""Eager mode: variables with values, the tracer that runs ops on them, and the tape that gradients follow from."""
