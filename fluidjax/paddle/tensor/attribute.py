"""``paddle.tensor.attribute``: what a tensor is like."""

from fluidjax import layers
from fluidjax.paddle.tensor.at_once import surfaces

__all__ = ["rank", "shape"]

rank, shape = surfaces(layers, "rank shape")
