"""``paddle.utils``."""
