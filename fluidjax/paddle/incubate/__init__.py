"""``paddle.incubate``: the beginnings of Paddle's high-level API, as far as 1.8.5 has them."""

from fluidjax.paddle.incubate import hapi as hapi

__all__: list[str] = []
