"""Ops tested as Paddle tests its own: an OpTest class, and the names that such tests use."""
