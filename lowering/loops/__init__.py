"""Loops, branches and recurrences, and their gradients."""
