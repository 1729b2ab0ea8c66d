# ruff: noqa: F401, F403  (the names of fluid.layers are gathered here)
"""Layers: functions that write ops into the default programs."""

from fluidjax.base.unknown import unknown_name as _unknown_name
from fluidjax.layers import (
    collective,
    control_flow,
    device,
    distributions,
    io,
    learning_rate_scheduler,
    loss,
    metric_op,
    nn,
    ops,
    tensor,
)
from fluidjax.layers.control_flow import *
from fluidjax.layers.detection import *
from fluidjax.layers.distributions import *
from fluidjax.layers.io import *
from fluidjax.layers.learning_rate_scheduler import *
from fluidjax.layers.loss import *
from fluidjax.layers.metric_op import *
from fluidjax.layers.nn import *
from fluidjax.layers.ops import *
from fluidjax.layers.rnn import *
from fluidjax.layers.sequence_lod import *
from fluidjax.layers.tensor import *

__getattr__ = _unknown_name(__name__)
