"""The names of ``fluid.contrib.layers``."""

from fluidjax.contrib.layers import rnn_impl
from fluidjax.contrib.layers.rnn_impl import *  # noqa: F403

__all__ = [*rnn_impl.__all__]
