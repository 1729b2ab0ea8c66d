"""Networks: rooms behind ``layers.nn``."""
