# ruff: noqa: F403  (the names of fluid.layers.nn are gathered here)
"""The names of ``fluid.layers.nn``."""

from fluidjax.layers.activation import *
from fluidjax.layers.elementwise import *
from fluidjax.layers.indexing import *
from fluidjax.layers.manipulation import *
from fluidjax.layers.matmul import *
from fluidjax.layers.random import *
from fluidjax.layers.reduction import *
from fluidjax.layers.slicing import *
from fluidjax.layers.step_counter import *
