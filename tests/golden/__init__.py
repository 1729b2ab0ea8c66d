"""Recordings of Paddle 1.8.5 and the runners that replay them."""
