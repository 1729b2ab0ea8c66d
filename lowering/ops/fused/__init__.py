"""The fused ops of Paddle's inference passes."""
