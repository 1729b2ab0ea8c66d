"""Rows of ragged sequences: where they begin, how they are reordered, packed and padded."""
