# ruff: noqa: F403
"""``paddle.complex``: layers on ComplexVariables, composed of real ones. Real operands are accepted too."""

from fluidjax.paddle.complex import tensor
from fluidjax.paddle.complex.tensor import *

__all__ = [*tensor.__all__]
