"""``paddle.incubate``: the beginnings of Paddle's high-level API, as far as 1.8.5 has them."""

from fluidjax.paddle.incubate import hapi

__all__ = ["hapi"]
