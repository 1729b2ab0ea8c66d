"""Losses and the metrics that judge beside them."""
