"""The eager variable, its gradient, and what it shares memory with."""
