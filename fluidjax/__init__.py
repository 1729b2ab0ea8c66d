"""PaddlePaddle Fluid's programming model on JAX.

``import fluidjax as fluid`` replaces ``import paddle.fluid as fluid``.
"""
# ruff: noqa: E402, F401, F403, F405, I001  (the back end is checked before anything needs it; imports follow the layers)

import gc as _gc
from typing import TYPE_CHECKING as _TYPE_CHECKING

# What is imported lives as long as the process: looking for garbage in it takes a third of the time.
_collects = _gc.isenabled()
_gc.disable()

import lowering as _lowering

from fluidjax.backend_check import check_lowering as _check_lowering

_check_lowering(_lowering)

# The layer below: values, scopes, places, programs. One import per line, in the order of the layers.
from fluidjax import core
from fluidjax.base.version import package_version as _package_version
from fluidjax.base.later import later as _later
from fluidjax import unique_name
from fluidjax import framework, proto
from fluidjax.framework import (
    ComplexVariable,
    Program,
    Variable,
    cpu_places,
    cuda_pinned_places,
    cuda_places,
    default_main_program,
    default_startup_program,
    device_guard,
    get_flags,
    in_dygraph_mode,
    is_compiled_with_cuda,
    load_op_library,
    name_scope,
    program_guard,
    require_version,
    set_flags,
)
from fluidjax.base.places import CPUPlace, CUDAPinnedPlace, CUDAPlace
from fluidjax.base.scope import Scope, global_scope, scope_guard
from fluidjax.base.values import LoDTensor
from fluidjax.base.containers import LoDTensorArray
from fluidjax import lod_tensor
from fluidjax.lod_tensor import create_lod_tensor, create_random_int_lodtensor

Tensor = LoDTensor

from fluidjax.native.library import core_suffix, legacy_core

# Describing parameters and writing layers.
from fluidjax import initializer
from fluidjax import regularizer
from fluidjax import clip
from fluidjax import param_attr
from fluidjax import layer_helper
from fluidjax.param_attr import ParamAttr, WeightNormParamAttr
from fluidjax import layers
from fluidjax.layers.math_op_patch import monkey_patch_variable

monkey_patch_variable()

from fluidjax.notebook import (
    install_eager_reprs as _install_eager_reprs,
    install_reprs as _install_reprs,
    watch_cells as _watch_cells,
    watch_errors as _watch_errors,
)

_install_reprs()
_install_eager_reprs()
_watch_cells()
_watch_errors()

from fluidjax import average, evaluator, metrics, nets
from fluidjax.input import embedding, one_hot

# Values in and out: feeds, readers, files.
from fluidjax import data_feeder, dataloader, dataset, reader
from fluidjax.data import data
from fluidjax.data_feeder import DataFeeder
from fluidjax.dataset import DatasetFactory, InMemoryDataset, QueueDataset
from fluidjax import io
from fluidjax.io import load, load_program_state, save, set_program_state

# Running programs.
from fluidjax import compiler, executor, parallel_executor, profiler
from fluidjax.compiler import BuildStrategy, CompiledProgram, ExecutionStrategy
from fluidjax.execution.executables.allocator import share_one_heap as _share_one_heap
from fluidjax.execution.runs.mode import interpret_mode
from fluidjax.executor import Executor
from fluidjax.parallel_executor import ParallelExecutor
from fluidjax.distributed import provide_services as _provide_services

_provide_services()
_share_one_heap()  # before jax is asked for devices, whose threads it is for

# Gradients.
from fluidjax import backward
from fluidjax.backward import gradients

# Optimizers.
from fluidjax import optimizer

# Eager mode.
from fluidjax import dygraph
from fluidjax.dygraph.base import disable_dygraph, disable_imperative, enable_dygraph, enable_imperative
from fluidjax.dygraph.checkpoint import load_dygraph, save_dygraph
from fluidjax.dygraph.layers import Layer
from fluidjax.dygraph.nn import *
from fluidjax.dygraph.varbase_patch_methods import monkey_patch_varbase

# Under its old name.
from fluidjax import wrapped_decorator

# What few scripts use is imported when it is asked for: a seventh of all modules.
_LATER = {
    **dict.fromkeys(("from_jax", "ragged", "to_jax"), "fluidjax.export"),
    **dict.fromkeys(("GradientMismatch", "GradientReport", "check_grad"), "fluidjax.gradcheck"),
    **dict.fromkeys(("memory_optimize", "release_memory"), "fluidjax.transpiler.memory_optimization_transpiler"),
    **dict.fromkeys(("DistributeTranspiler", "DistributeTranspilerConfig"), "fluidjax.transpiler"),
    **dict.fromkeys(("data_generator", "fleet"), "fluidjax.incubate"),
    "load_ipython_extension": "fluidjax.notebook.extension",
    **{name: f"fluidjax.{name}" for name in ("contrib", "core_avx", "debugger", "default_scope_funcs", "export")},
    **{name: f"fluidjax.{name}" for name in ("gradcheck", "incubate", "install_check", "transpiler")},
    **{name: f"fluidjax.{name}" for name in ("data_feed_desc", "device_worker", "dygraph_utils", "graphviz")},
    **{name: f"fluidjax.{name}" for name in ("multiprocess_utils", "net_drawer", "trainer_desc", "trainer_factory")},
    "DataFeedDesc": "fluidjax.data_feed_desc",
}

if _TYPE_CHECKING:
    from fluidjax import contrib, core_avx, debugger, default_scope_funcs, export, gradcheck, incubate, install_check
    from fluidjax import data_feed_desc, device_worker, dygraph_utils, graphviz, multiprocess_utils, net_drawer
    from fluidjax import trainer_desc, trainer_factory, transpiler
    from fluidjax.data_feed_desc import DataFeedDesc
    from fluidjax.export import from_jax, ragged, to_jax
    from fluidjax.gradcheck import GradientMismatch, GradientReport, check_grad
    from fluidjax.incubate import data_generator, fleet
    from fluidjax.transpiler import DistributeTranspiler, DistributeTranspilerConfig
    from fluidjax.transpiler.memory_optimization_transpiler import memory_optimize, release_memory
else:
    __getattr__, __dir__ = _later(__name__, _LATER)

__all__ = [
    "Program", "default_startup_program", "default_main_program", "program_guard", "name_scope", "cuda_places",
    "cpu_places", "cuda_pinned_places", "in_dygraph_mode", "is_compiled_with_cuda", "Variable", "ComplexVariable",
    "load_op_library", "require_version", "device_guard", "set_flags", "get_flags", "Executor", "global_scope",
    "scope_guard", "DistributeTranspiler", "memory_optimize", "release_memory", "DistributeTranspilerConfig",
    "ParallelExecutor", "create_lod_tensor", "create_random_int_lodtensor", "DataFeedDesc", "CompiledProgram",
    "ExecutionStrategy", "BuildStrategy", "gradients", "io", "initializer", "embedding", "one_hot", "layers", "contrib",
    "data", "dygraph", "enable_dygraph", "disable_dygraph", "enable_imperative", "disable_imperative", "transpiler",
    "nets", "optimizer", "learning_rate_decay", "backward", "regularizer", "LoDTensor", "LoDTensorArray", "CPUPlace",
    "CUDAPlace", "CUDAPinnedPlace", "Tensor", "ParamAttr", "WeightNormParamAttr", "DataFeeder", "clip", "profiler",
    "unique_name", "Scope", "install_check", "save", "load",
]  # fmt: skip

__version__ = _package_version()

# Looked through once more, all of it, in the middle of the first step, it would cost that step a tenth of a second.
_gc.freeze()
if _collects:
    _gc.enable()

# What the GPU's place was called before Fluid 0.11.
GPUPlace = CUDAPlace
