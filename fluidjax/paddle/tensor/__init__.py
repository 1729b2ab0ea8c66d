# ruff: noqa: A004, F403, F405  (names of Paddle that Python has too)
"""``paddle.tensor``: functions of tensors, for programs and at once; thin names over ``fluid.layers``."""

from fluidjax.paddle.tensor.at_once import Tensor
from fluidjax.paddle.tensor.attribute import *
from fluidjax.paddle.tensor.creation import *
from fluidjax.paddle.tensor.io import *
from fluidjax.paddle.tensor.linalg import *
from fluidjax.paddle.tensor.logic import *
from fluidjax.paddle.tensor.manipulation import *
from fluidjax.paddle.tensor.math import *
from fluidjax.paddle.tensor.random import *
from fluidjax.paddle.tensor.search import *
from fluidjax.paddle.tensor.stat import *

__all__ = [
    "Tensor", "abs", "acos", "add", "addcmul", "addmm", "allclose", "arange", "argmax", "argmin", "argsort", "asin",
    "atan", "bmm", "cast", "ceil", "cholesky", "clamp", "concat", "cos", "create_tensor", "crop_tensor", "cross",
    "cumsum", "diag", "dist", "div", "dot", "elementwise_add", "elementwise_div", "elementwise_equal",
    "elementwise_floordiv", "elementwise_max", "elementwise_min", "elementwise_mod", "elementwise_mul",
    "elementwise_pow", "elementwise_sub", "elementwise_sum", "equal", "erf", "exp", "expand", "expand_as", "eye",
    "fill_constant", "flatten", "flip", "floor", "full", "full_like", "gather", "gather_nd", "greater_equal",
    "greater_than", "has_inf", "has_nan", "increment", "index_sample", "index_select", "inverse", "is_empty",
    "isfinite", "kron", "less_equal", "less_than", "linspace", "load", "log", "log1p", "logical_and", "logical_not",
    "logical_or", "logical_xor", "logsumexp", "matmul", "max", "mean", "meshgrid", "min", "mm", "mul", "multiplex",
    "nonzero", "norm", "not_equal", "ones", "ones_like", "pow", "rand", "randint", "randn", "randperm", "rank",
    "reciprocal", "reduce_all", "reduce_any", "reduce_max", "reduce_mean", "reduce_min", "reduce_prod",
    "reduce_sum", "reshape", "reverse", "roll", "round", "rsqrt", "save", "scale", "scatter", "scatter_nd",
    "scatter_nd_add", "shape", "shard_index", "shuffle", "sign", "sin", "slice", "sort", "split", "sqrt", "square",
    "squeeze", "stack", "stanh", "std", "strided_slice", "sum", "sums", "t", "tanh", "topk", "trace", "transpose",
    "tril", "triu", "unbind", "unique", "unique_with_counts", "unsqueeze", "unstack", "var", "where", "zeros",
    "zeros_like",
]  # fmt: skip
