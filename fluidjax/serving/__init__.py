"""A saved model as a server: HTTP with JSON or npz, requests computed together, limits, health and metrics."""
