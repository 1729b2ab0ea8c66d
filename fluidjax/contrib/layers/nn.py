# ruff: noqa: F403  (the names of fluid.contrib.layers.nn are gathered here)
"""The names of ``fluid.contrib.layers.nn``."""

from fluidjax.contrib.layers import sequence
from fluidjax.contrib.layers.sequence import *

__all__ = [*sequence.__all__]
