"""A saved model as an HTTP server: JSON or npz, batching of requests, limits, health and metrics."""
