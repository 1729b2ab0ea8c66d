"""Fleet utilities."""
