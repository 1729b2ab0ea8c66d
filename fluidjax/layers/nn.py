# ruff: noqa: F403  (the names of fluid.layers.nn are gathered here)
"""The names of ``fluid.layers.nn``."""

from fluidjax.layers._detection.regions import prroi_pool as prroi_pool
from fluidjax.layers._detection.regions import psroi_pool as psroi_pool
from fluidjax.layers._detection.regions import roi_align as roi_align
from fluidjax.layers._detection.regions import roi_pool as roi_pool
from fluidjax.layers._loss.terms import *
from fluidjax.layers._nn.activation import *
from fluidjax.layers._nn.batch_norm import *
from fluidjax.layers._nn.common import *
from fluidjax.layers._nn.conv import *
from fluidjax.layers._nn.norm import *
from fluidjax.layers._nn.pool import *
from fluidjax.layers._nn.python_function import *
from fluidjax.layers._nn.resize import *
from fluidjax.layers._nn.step_counter import *
from fluidjax.layers._nn.vision import *
from fluidjax.layers._sequence.crf import *
from fluidjax.layers._sequence.ctc import ctc_greedy_decoder as ctc_greedy_decoder
from fluidjax.layers._sequence.nn import *
from fluidjax.layers._tensor.elementwise import *
from fluidjax.layers._tensor.indexing import *
from fluidjax.layers._tensor.manipulation import *
from fluidjax.layers._tensor.matmul import *
from fluidjax.layers._tensor.random import *
from fluidjax.layers._tensor.reduction import *
from fluidjax.layers._tensor.slicing import *
from fluidjax.layers._tensor.sparse import *
from fluidjax.layers.metric_op import mean_iou as mean_iou
