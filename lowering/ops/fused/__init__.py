"""Ops that Paddle's inference passes fuse out of others."""
