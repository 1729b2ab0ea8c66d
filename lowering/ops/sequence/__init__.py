"""Ops over the rows of ragged sequences."""
