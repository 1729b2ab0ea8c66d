"""Tools around a fleet."""
