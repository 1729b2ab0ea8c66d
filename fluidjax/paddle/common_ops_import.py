# ruff: noqa: F401
"""What modules of layers import by a star: the helper that writes ops, checks of arguments, modes and dtypes."""

import warnings
from functools import reduce

import numpy

import fluidjax as fluid
from fluidjax import core, dygraph_utils
from fluidjax.core import VarDesc
from fluidjax.data_feeder import check_dtype, check_type, check_variable_and_dtype, convert_dtype
from fluidjax.framework import (
    OpProtoHolder,
    Variable,
    _dygraph_tracer,
    _varbase_creator,
    convert_np_dtype_to_dtype_,
    default_main_program,
    device_guard,
    dygraph_only,
    in_dygraph_mode,
)
from fluidjax.initializer import Constant
from fluidjax.layer_helper import LayerHelper
from fluidjax.layers import fill_constant, scale, utils
from fluidjax.layers.layer_function_generator import templatedoc
from fluidjax.param_attr import ParamAttr
