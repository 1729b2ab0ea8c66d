# ruff: noqa: F403  (the names of fluid.layers.nn are gathered here)
"""The names of ``fluid.layers.nn``."""

from fluidjax.layers.activation import *
from fluidjax.layers.common import *
from fluidjax.layers.conv import *
from fluidjax.layers.crf import *
from fluidjax.layers.ctc import ctc_greedy_decoder as ctc_greedy_decoder
from fluidjax.layers.detection_regions import prroi_pool as prroi_pool
from fluidjax.layers.detection_regions import psroi_pool as psroi_pool
from fluidjax.layers.detection_regions import roi_align as roi_align
from fluidjax.layers.detection_regions import roi_pool as roi_pool
from fluidjax.layers.elementwise import *
from fluidjax.layers.indexing import *
from fluidjax.layers.loss_terms import *
from fluidjax.layers.manipulation import *
from fluidjax.layers.matmul import *
from fluidjax.layers.metric_op import mean_iou as mean_iou
from fluidjax.layers.norm import *
from fluidjax.layers.pool import *
from fluidjax.layers.python_function import *
from fluidjax.layers.random import *
from fluidjax.layers.reduction import *
from fluidjax.layers.resize import *
from fluidjax.layers.sequence_nn import *
from fluidjax.layers.slicing import *
from fluidjax.layers.sparse import *
from fluidjax.layers.step_counter import *
from fluidjax.layers.vision import *
