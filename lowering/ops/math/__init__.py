"""Arithmetic: elementwise, reductions, products of matrices."""
