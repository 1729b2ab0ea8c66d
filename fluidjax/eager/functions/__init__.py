"""Ops that are Python functions or static programs."""
