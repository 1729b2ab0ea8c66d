"""The names of ``fluid.contrib.layers``."""

from fluidjax.contrib.layers import metric_op, nn, rnn_impl
from fluidjax.contrib.layers.metric_op import *  # noqa: F403
from fluidjax.contrib.layers.nn import *  # noqa: F403
from fluidjax.contrib.layers.rnn_impl import *  # noqa: F403

__all__ = [*nn.__all__, *rnn_impl.__all__, *metric_op.__all__]
