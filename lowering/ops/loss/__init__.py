"""Losses, and related metrics."""
