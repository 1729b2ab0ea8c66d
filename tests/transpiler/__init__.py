"""Programs for many machines."""
