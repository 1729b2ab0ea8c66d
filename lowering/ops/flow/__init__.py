"""Loops, branches, tensor arrays, rank tables, beam search."""
