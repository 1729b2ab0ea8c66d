"""The names scripts use from ``fluid.core``: values, scopes, places, enumerations, descs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from fluidjax.backward.one_op import get_grad_op_desc
from fluidjax.base.containers import FetchList, FetchUnmergedList, LodRankTable, LoDTensorArray, SelectedRows
from fluidjax.base.enums import AttrType, OpRole, VarType, to_numpy_dtype
from fluidjax.base.errors import EnforceNotMet, EOFException
from fluidjax.base.flags import GlobalVarGetterSetterRegistry
from fluidjax.base.later import later
from fluidjax.base.places import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    Place,
    get_cuda_device_count,
    is_compiled_with_cuda,
)
from fluidjax.base.scope import Scope
from fluidjax.base.scope import ScopeVariable as Variable
from fluidjax.base.unbuilt import unbuilt
from fluidjax.base.values import LoDTensor, Tensor
from fluidjax.eager.backward.strategy import BackwardStrategy
from fluidjax.eager.ops import ops
from fluidjax.eager.variables.varbase import VarBase
from fluidjax.execution.feeding.fits import diff_tensor_shape
from fluidjax.execution.native import ExecutorPrepareContext
from fluidjax.execution.python_functions import register as _append_python_callable_object_and_return_id
from fluidjax.execution.single import NativeOperator
from fluidjax.framework import load_op_library
from fluidjax.framework import names as _names
from fluidjax.framework.descs import BlockDescView as BlockDesc
from fluidjax.framework.descs import ProgramDescView as ProgramDesc
from fluidjax.framework.op_desc import OpDescView as OpDesc
from fluidjax.framework.prune_descs import prune_backward_desc as prune_backward
from fluidjax.framework.prune_descs import prune_desc as prune
from fluidjax.framework.var_desc import VarDescView as VarDesc
from fluidjax.native.executor import Executor
from fluidjax.native.library import (
    DeviceContext,
    __unittest_throw_exception__,
    _dygraph_debug_level,
    _is_dygraph_debug_enabled,
    _is_program_version_supported,
    avx_supported,
    core_suffix,
    has_avx_core,
    has_noavx_core,
    save_op_compatible_info,
)
from fluidjax.native.registered import (
    _get_all_register_op_kernels,
    _get_use_default_grad_op_desc_maker_ops,
    get_all_op_protos,
    get_op_attrs_default_value,
    has_grad_op_maker,
    has_infer_inplace,
    has_non_empty_grad_op_maker,
    infer_no_need_buffer_slots,
    op_support_gpu,
)
from fluidjax.native.settings import (
    _set_eager_deletion_mode,
    _set_fuse_parameter_group_size,
    _set_fuse_parameter_memory_size,
    init_devices,
    init_gflags,
    init_glog,
    set_num_threads,
)
from fluidjax.native.tensors import from_dlpack, paddle_tensor_to_bytes
from fluidjax.passes import Pass, PassBuilder, get_pass
from fluidjax.readers.tensor_queue import TensorQueue, _convert_to_tensor_list, init_lod_tensor_blocking_queue

_CONFIG = ("AnalysisConfig", "MkldnnQuantizerConfig", "NativeConfig")
_STRATEGIES = ("CpuPassStrategy", "GpuPassStrategy", "PaddlePassBuilder", "PassStrategy")
_PREDICTORS = ("AnalysisPredictor", "NativePaddlePredictor", "PaddlePredictor", "create_paddle_predictor")
_GIVEN = ("PaddleBuf", "PaddleDType", "PaddlePlace", "PaddleTensor", "ZeroCopyTensor", "paddle_dtype_size")
_ORDERING = ("build_adjacency_list", "graph_num", "has_circle", "topology_sort")
_CHILDREN = (
    "_erase_process_pids",
    "_set_process_pids",
    "_set_process_signal_handler",
    "_throw_error_if_process_failed",
)
_COMMANDS = ("less_than_ver", "run_cmd", "run_shell_command")
_DICTS = ("_create_loaded_parameter", "_load_dygraph_dict", "_load_static_dict", "_save_dygraph_dict",
          "_save_static_dict")  # fmt: skip
_EAGER = ("_switch_tracer", "dygraph_partial_grad", "start_imperative_gperf_profiler", "stop_imperative_gperf_profiler")
_KEYS = "kDisabled kCPU kCUDA kAll kDefault kCalls kTotal kMin kMax kAve kOpDetail kAllOpDetail".split()
_PROFILING = ("EventSortingKey", "ProfilerState", "TracerOption", "disable_profiler", "enable_profiler",
              "is_profiler_enabled", "reset_profiler", "set_tracer_option", *_KEYS)  # fmt: skip
_READING = ("IterableDatasetWrapper", "MultiDeviceFeedReader", "OrderedMultiDeviceFeedReader",
            "OrderedMultiDeviceLoDTensorBlockingQueue", "create_py_reader")  # fmt: skip

if TYPE_CHECKING:
    from fluidjax.distributed.gloo import Gloo
    from fluidjax.dygraph.parallel import ParallelStrategy
    from fluidjax.dygraph.tracer import Tracer
    from fluidjax.execution.trainer import TrainerBase
    from fluidjax.inference.config import AnalysisConfig, NativeConfig
    from fluidjax.inference.pass_builder import CpuPassStrategy, GpuPassStrategy, PaddlePassBuilder, PassStrategy
    from fluidjax.inference.predictor import (
        AnalysisPredictor,
        NativePaddlePredictor,
        PaddlePredictor,
        create_paddle_predictor,
    )
    from fluidjax.inference.quantizer import MkldnnQuantizerConfig
    from fluidjax.inference.tensors import (
        PaddleBuf,
        PaddleDType,
        PaddlePlace,
        PaddleTensor,
        ZeroCopyTensor,
        paddle_dtype_size,
    )
    from fluidjax.ir.graph import Graph, graph_safe_remove_nodes
    from fluidjax.ir.nodes import Node
    from fluidjax.ir.ordering import build_adjacency_list, graph_num, has_circle, topology_sort
    from fluidjax.native.children import (
        _erase_process_pids,
        _set_process_pids,
        _set_process_signal_handler,
        _throw_error_if_process_failed,
    )
    from fluidjax.native.commands import less_than_ver, run_cmd, run_shell_command
    from fluidjax.native.dicts import (
        _create_loaded_parameter,
        _load_dygraph_dict,
        _load_static_dict,
        _save_dygraph_dict,
        _save_static_dict,
    )
    from fluidjax.native.eager import (
        _switch_tracer,
        dygraph_partial_grad,
        start_imperative_gperf_profiler,
        stop_imperative_gperf_profiler,
    )
    from fluidjax.native.feed_reader import (
        IterableDatasetWrapper,
        MultiDeviceFeedReader,
        OrderedMultiDeviceFeedReader,
        OrderedMultiDeviceLoDTensorBlockingQueue,
        create_py_reader,
    )
    from fluidjax.native.parallel import ParallelExecutor
    from fluidjax.native.profiling import (
        EventSortingKey,
        ProfilerState,
        TracerOption,
        disable_profiler,
        enable_profiler,
        is_profiler_enabled,
        reset_profiler,
        set_tracer_option,
    )
    from fluidjax.native.pslib import Fleet as Fleet
    from fluidjax.readers.multi_slot_dataset import Dataset
else:
    __getattr__, __dir__ = later(
        __name__,
        {
            "Dataset": "fluidjax.readers.multi_slot_dataset",
            "TrainerBase": "fluidjax.execution.trainer",
            "Gloo": "fluidjax.distributed.gloo",
            "Graph": "fluidjax.ir.graph",
            "graph_safe_remove_nodes": "fluidjax.ir.graph",
            "Node": "fluidjax.ir.nodes",
            "Fleet": "fluidjax.native.pslib",
            "ParallelExecutor": "fluidjax.native.parallel",
            "ParallelStrategy": "fluidjax.dygraph.parallel",
            "Tracer": "fluidjax.dygraph.tracer",
            **dict.fromkeys(_CONFIG, "fluidjax.inference.config"),
            **dict.fromkeys(_STRATEGIES, "fluidjax.inference.pass_builder"),
            **dict.fromkeys(_PREDICTORS, "fluidjax.inference.predictor"),
            **dict.fromkeys(_GIVEN, "fluidjax.inference.tensors"),
            **dict.fromkeys(_ORDERING, "fluidjax.ir.ordering"),
            **dict.fromkeys(_CHILDREN, "fluidjax.native.children"),
            **dict.fromkeys(_COMMANDS, "fluidjax.native.commands"),
            **dict.fromkeys(_DICTS, "fluidjax.native.dicts"),
            **dict.fromkeys(_EAGER, "fluidjax.native.eager"),
            **dict.fromkeys(_PROFILING, "fluidjax.native.profiling"),
            **dict.fromkeys(_READING, "fluidjax.native.feed_reader"),
        },
    )

__all__ = [
    "__unittest_throw_exception__", "_append_python_callable_object_and_return_id", "_convert_to_tensor_list",
    "_create_loaded_parameter", "_dygraph_debug_level", "_erase_process_pids", "_get_all_register_op_kernels",
    "_get_use_default_grad_op_desc_maker_ops", "_is_dygraph_debug_enabled",
    "_is_program_version_supported", "_load_dygraph_dict", "_load_static_dict", "_save_dygraph_dict",
    "_save_static_dict", "_set_eager_deletion_mode",
    "_set_fuse_parameter_group_size", "_set_fuse_parameter_memory_size", "_set_process_pids",
    "_set_process_signal_handler", "_switch_tracer", "_throw_error_if_process_failed",
    "AnalysisConfig", "AnalysisPredictor", "AttrType", "avx_supported", "BackwardStrategy", "BlockDesc",
    "build_adjacency_list", "core_suffix", "CpuPassStrategy", "CPUPlace", "create_paddle_predictor",
    "create_py_reader", "CUDAPinnedPlace", "CUDAPlace", "Dataset", "DeviceContext", "diff_tensor_shape",
    "disable_profiler", "dygraph_partial_grad", "enable_profiler", "EnforceNotMet", "EOFException", "EventSortingKey",
    "Executor", "ExecutorPrepareContext", "FetchList", "FetchUnmergedList", "from_dlpack", "get_all_op_protos",
    "get_cuda_device_count", "get_grad_op_desc", "get_op_attrs_default_value", "get_pass",
    "GlobalVarGetterSetterRegistry", "Gloo", "GpuPassStrategy", "Graph", "graph_num", "graph_safe_remove_nodes",
    "has_avx_core", "has_circle", "has_grad_op_maker", "has_infer_inplace", "has_noavx_core",
    "has_non_empty_grad_op_maker", "infer_no_need_buffer_slots", "init_devices", "init_gflags", "init_glog",
    "init_lod_tensor_blocking_queue", "is_compiled_with_cuda", "is_profiler_enabled", "IterableDatasetWrapper",
    "Layer", "less_than_ver", "load_op_library", "LodRankTable", "LoDTensor", "LoDTensorArray",
    "MkldnnQuantizerConfig", "MultiDeviceFeedReader", "NativeConfig", "NativePaddlePredictor", "Node",
    "op_support_gpu", "OpDesc", "ops", "OrderedMultiDeviceFeedReader", "OrderedMultiDeviceLoDTensorBlockingQueue",
    "paddle_dtype_size", "paddle_tensor_to_bytes", "PaddleBuf", "PaddleDType", "PaddlePassBuilder", "PaddlePlace",
    "PaddlePredictor", "PaddleTensor", "ParallelExecutor", "ParallelStrategy", "Pass", "PassBuilder", "PassStrategy",
    "Place", "ProfilerState", "ProgramDesc", "prune", "prune_backward", "reset_profiler", "run_cmd",
    "run_shell_command", "save_op_compatible_info", "Scope", "SelectedRows", "set_num_threads", "set_tracer_option",
    "start_imperative_gperf_profiler", "stop_imperative_gperf_profiler", "Tensor", "topology_sort", "Tracer",
    "TracerOption", "TrainerBase", "VarBase", "VarDesc", "Variable", "ZeroCopyTensor",
]  # fmt: skip

_Scope = Scope


class Layer:
    """The former base class of Fluid's Layer; computes nothing."""

    def forward(self, inputs: list[VarBase]) -> list[VarBase]:
        """Returns no outputs."""
        return []


# What talks to services outside of Python, and what C++ readers and tracers are to each other.
BoxPS, DistCommunicator, ProgramDescTracer, Reader = (
    unbuilt(__name__, name) for name in ("BoxPS", "DistCommunicator", "ProgramDescTracer", "Reader")
)

# One op on its own.
Operator = NativeOperator

LoDTensorBlockingQueue = TensorQueue

# The names of the attributes that every op has, and the roles, where Fluid keeps them.
op_proto_and_checker_maker = SimpleNamespace(
    OpRole=OpRole,
    kOpRoleAttrName=lambda: _names.OP_ROLE,
    kOpRoleVarAttrName=lambda: _names.OP_ROLE_VAR,
    kOpNameScopeAttrName=lambda: _names.OP_NAMESCOPE,
    kOpCreationCallstackAttrName=lambda: _names.OP_CALLSTACK,
    kOpDeviceAttrName=lambda: _names.OP_DEVICE,
)


def kEmptyVarName() -> str:
    """The name that stands for no variable."""
    return _names.EMPTY_VAR_NAME


empty_var_name = kEmptyVarName


def kTempVarName() -> str:
    """The name of a temporary variable."""
    return _names.TEMP_VAR_NAME


def kGradVarSuffix() -> str:
    """The suffix of gradient variables."""
    return _names.GRAD_VAR_SUFFIX


grad_var_suffix = kGradVarSuffix


def kZeroVarSuffix() -> str:
    """The suffix of variables filled with zeros."""
    return _names.ZERO_VAR_SUFFIX


def kNewGradSuffix() -> str:
    """The suffix of a gradient that replaces another."""
    return _names.NEW_GRAD_SUFFIX


def kControlDepVarName() -> str:
    """The prefix of control dependencies."""
    return _names.CONTROL_DEP_VAR_PREFIX


def loaded_var_suffix() -> str:
    """The suffix of loaded variables."""
    return _names.LOADED_VAR_SUFFIX


def is_compiled_with_mkldnn() -> bool:
    """Whether ops run on oneDNN; False, since XLA chooses its own kernels."""
    return False


def is_compiled_with_brpc() -> bool:
    """Whether parameter servers communicate over brpc; False."""
    return False


def is_compiled_with_dist() -> bool:
    """Whether Fluid's parameter-server support is compiled in; False."""
    return False


_FLAGS = GlobalVarGetterSetterRegistry()


def globals() -> GlobalVarGetterSetterRegistry:
    """All flags; assign to set one."""
    return _FLAGS


def size_of_dtype(dtype: VarType) -> int:
    """The size of an element in bytes."""
    return to_numpy_dtype(dtype).itemsize


def is_float16_supported(place: Place) -> bool:
    """Whether ops can compute in float16 at a place; always True with XLA."""
    return True


def get_variable_tensor(scope: Scope, var_name: str) -> LoDTensor:
    """The tensor of a variable in a scope. Raises EnforceNotMet if the variable does not exist."""
    var = scope.find_var(var_name)
    if var is None:
        raise EnforceNotMet(f"the scope has no variable {var_name}. Expected one that a program or scope.var() made.")
    return var.get_tensor()


def set_feed_variable(scope: Scope, tensor: LoDTensor, var_name: str, col: int) -> None:
    """Store a tensor in column `col` of a feed variable."""
    column = scope.var(var_name).get_fetch_list()
    column.extend(LoDTensor() for _ in range(col + 1 - len(column)))
    column[col] = tensor


def get_fetch_variable(scope: Scope, var_name: str, col: int) -> Any:
    """Column `col` of a fetch variable."""
    return scope.var(var_name).get_fetch_list()[col]


# Its name before Fluid 0.12.
is_compile_gpu = is_compiled_with_cuda
