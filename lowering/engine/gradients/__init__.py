"""Which ops compute the gradient of an op, to any order."""
