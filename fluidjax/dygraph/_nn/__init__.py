"""The layer classes: rooms behind ``dygraph.nn``."""
