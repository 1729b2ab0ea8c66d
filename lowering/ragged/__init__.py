"""Rows of ragged sequences: where they begin, and how they are reordered, packed and padded."""
