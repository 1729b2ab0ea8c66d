# ruff: noqa: F403
"""``paddle.complex.tensor``: the layers by kind, as Paddle files them."""

from fluidjax.paddle.complex.tensor import linalg, manipulation, math
from fluidjax.paddle.complex.tensor.linalg import *
from fluidjax.paddle.complex.tensor.manipulation import *
from fluidjax.paddle.complex.tensor.math import *

__all__ = [*math.__all__, *manipulation.__all__, *linalg.__all__]
