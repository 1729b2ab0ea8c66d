"""The package imported by ``import paddle``: readers, datasets and ``paddle.fluid``."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import fluidjax as fluid
from fluidjax.paddle import batch as _batch
from fluidjax.paddle import check_import_scipy as _check
from fluidjax.paddle import compat, reader, sysconfig, version

batch = _batch.batch
check_import_scipy = _check.check_import_scipy

__version__ = version.full_version
__git_commit__ = version.commit

# fmt: off
__all__ = [
    "BuildStrategy", "CPUPlace", "CUDAPinnedPlace", "CUDAPlace", "CompiledProgram", "ExecutionStrategy", "Executor",
    "ParallelExecutor", "ParamAttr", "Print", "Program", "Tensor", "Variable", "WeightNormParamAttr", "abs", "acos",
    "add", "addcmul", "addmm", "allclose", "append_backward", "arange", "argmax", "argmin", "argsort", "asin",
    "atan", "autograd", "batch", "bmm", "cast", "ceil", "check_import_scipy", "cholesky", "clamp", "compat",
    "complex", "concat", "cos", "create_global_var", "create_parameter", "create_tensor", "crop_tensor", "cross",
    "cumsum", "data", "dataset", "default_main_program", "default_startup_program", "diag", "disable_imperative",
    "dist", "distributed", "div", "dot", "elementwise_add", "elementwise_div", "elementwise_equal",
    "elementwise_floordiv", "elementwise_max", "elementwise_min", "elementwise_mod", "elementwise_mul",
    "elementwise_pow", "elementwise_sub", "elementwise_sum", "enable_imperative", "equal", "erf", "exp", "expand",
    "expand_as", "eye", "fill_constant", "flatten", "flip", "floor", "fluid", "framework", "full", "full_like",
    "gather", "gather_nd", "global_scope", "gradients", "greater_equal", "greater_than", "has_inf", "has_nan",
    "imperative", "in_imperative_mode", "increment", "index_sample", "index_select", "inverse", "io", "is_empty",
    "isfinite", "kron", "less_equal", "less_than", "linspace", "load", "log", "log1p", "logical_and", "logical_not",
    "logical_or", "logical_xor", "logsumexp", "manual_seed", "matmul", "max", "mean", "meshgrid", "metric", "min",
    "mm", "mul", "multiplex", "name_scope", "nn", "nonzero", "norm", "not_equal", "ones", "ones_like", "optimizer",
    "pow", "program_guard", "py_func", "rand", "randint", "randn", "randperm", "rank", "reader", "reciprocal",
    "reduce_all", "reduce_any", "reduce_max", "reduce_mean", "reduce_min", "reduce_prod", "reduce_sum", "reshape",
    "reverse", "roll", "round", "rsqrt", "save", "scale", "scatter", "scatter_nd", "scatter_nd_add", "scope_guard",
    "shape", "shard_index", "shuffle", "sign", "sin", "slice", "sort", "split", "sqrt", "square", "squeeze",
    "stack", "stanh", "static", "std", "strided_slice", "sum", "sums", "sysconfig", "t", "tanh", "tensor", "topk",
    "trace", "transpose", "tril", "triu", "unbind", "unique", "unique_with_counts", "unsqueeze", "unstack", "utils",
    "var", "version", "where", "zeros", "zeros_like",
]
# fmt: on


_MODULES = (
    "autograd", "complex", "dataset", "distributed", "framework", "imperative", "incubate", "inference", "io", "metric",
    "nn", "optimizer", "static", "tensor", "utils",
)  # fmt: skip
# Functions of Paddle 2's alpha, and what they are called elsewhere.
_SURFACES = ("tensor", "framework")
_ELSEWHERE = {
    "data": ("fluidjax", "data"),
    "disable_imperative": ("fluidjax", "disable_dygraph"),
    "disable_static": ("fluidjax", "enable_dygraph"),
    "enable_imperative": ("fluidjax", "enable_dygraph"),
    "enable_static": ("fluidjax", "disable_dygraph"),
    "in_dynamic_mode": ("fluidjax", "in_dygraph_mode"),
    "in_imperative_mode": ("fluidjax", "in_dygraph_mode"),
}


def __getattr__(name: str) -> Any:
    """Import submodules and tensor functions on first access."""
    if name == "v2":  # what the package was called inside, before Fluid 0.12
        return sys.modules[__name__]
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _ELSEWHERE:
        module, other = _ELSEWHERE[name]
        return getattr(importlib.import_module(module), other)
    if name in __all__:
        homes = [importlib.import_module(f"{__name__}.{surface}") for surface in _SURFACES]
        return next(getattr(home, name) for home in homes if name in home.__all__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
