# ruff: noqa: F401, F403  (the names of fluid.layers are gathered here)
"""Layers: functions that write ops into the default programs."""

from fluidjax.base.unknown import unknown_name as _unknown_name
from fluidjax.layers import (
    collective,
    control_flow,
    detection,
    device,
    distributions,
    io,
    learning_rate_scheduler,
    loss,
    metric_op,
    nn,
    ops,
    sequence_lod,
    tensor,
)
from fluidjax.layers._nn.python_function import py_layer
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
from fluidjax.layers.rnn import __all__ as _rnn_names  # the module is hidden by the layer of its name
from fluidjax.layers.sequence_lod import *
from fluidjax.layers.tensor import *

__all__: list[str] = []
__all__ += nn.__all__
__all__ += io.__all__
__all__ += tensor.__all__
__all__ += control_flow.__all__
__all__ += ops.__all__
__all__ += device.__all__
__all__ += detection.__all__
__all__ += metric_op.__all__
__all__ += learning_rate_scheduler.__all__
__all__ += distributions.__all__
__all__ += sequence_lod.__all__
__all__ += loss.__all__
__all__ += _rnn_names

__getattr__ = _unknown_name(__name__)
