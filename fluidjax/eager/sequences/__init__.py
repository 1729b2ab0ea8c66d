"""Sequences of ops that have occurred before, compiled as one block or in parts."""
