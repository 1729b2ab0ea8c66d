"""Base classes of the kinds of fleet."""
