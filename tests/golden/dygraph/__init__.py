"""Scripts in eager mode, with what they gave under Paddle 1.8.5."""
