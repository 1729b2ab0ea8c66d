"""Calls of layers that are known to record what they recorded before, whose Python then does not run."""
