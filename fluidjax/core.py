"""The names scripts use from ``fluid.core``: values, scopes, places, enumerations, descs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import lowering
from fluidjax.backward.one_op import get_grad_op_desc
from fluidjax.base.containers import LoDTensorArray, SelectedRows
from fluidjax.base.enums import AttrType, OpRole, VarType, to_numpy_dtype
from fluidjax.base.errors import EnforceNotMet, EOFException
from fluidjax.base.flags import FLAGS
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
from fluidjax.base.values import LoDTensor, Tensor
from fluidjax.eager.ops import ops
from fluidjax.eager.strategy import BackwardStrategy
from fluidjax.eager.varbase import VarBase
from fluidjax.execution.fits import diff_tensor_shape
from fluidjax.execution.native import ExecutorPrepareContext
from fluidjax.execution.native import NativeExecutor as Executor
from fluidjax.execution.single import NativeOperator
from fluidjax.framework import names as _names
from fluidjax.framework.descs import BlockDescView as BlockDesc
from fluidjax.framework.descs import ProgramDescView as ProgramDesc
from fluidjax.framework.op_desc import OpDescView as OpDesc
from fluidjax.framework.protos import op_proto
from fluidjax.framework.prune_descs import prune_backward_desc as prune_backward
from fluidjax.framework.prune_descs import prune_desc as prune
from fluidjax.framework.var_desc import VarDescView as VarDesc
from fluidjax.inference.config import AnalysisConfig, NativeConfig
from fluidjax.inference.pass_builder import CpuPassStrategy, GpuPassStrategy, PaddlePassBuilder, PassStrategy
from fluidjax.inference.predictor import (
    AnalysisPredictor,
    NativePaddlePredictor,
    PaddlePredictor,
    create_paddle_predictor,
)
from fluidjax.inference.tensors import (
    PaddleBuf,
    PaddleDType,
    PaddlePlace,
    PaddleTensor,
    ZeroCopyTensor,
    paddle_dtype_size,
)
from fluidjax.passes import Pass, PassBuilder, get_pass
from fluidjax.readers.tensor_queue import TensorQueue, init_lod_tensor_blocking_queue

_ORDERING = ("build_adjacency_list", "graph_num", "has_circle", "topology_sort")

if TYPE_CHECKING:
    from fluidjax.execution.trainer import TrainerBase
    from fluidjax.ir.graph import Graph, graph_safe_remove_nodes
    from fluidjax.ir.nodes import Node
    from fluidjax.ir.ordering import build_adjacency_list, graph_num, has_circle, topology_sort
    from fluidjax.readers.multi_slot_dataset import Dataset
else:
    __getattr__, __dir__ = later(
        __name__,
        {
            "Dataset": "fluidjax.readers.multi_slot_dataset",
            "TrainerBase": "fluidjax.execution.trainer",
            "Graph": "fluidjax.ir.graph",
            "graph_safe_remove_nodes": "fluidjax.ir.graph",
            "Node": "fluidjax.ir.nodes",
            **dict.fromkeys(_ORDERING, "fluidjax.ir.ordering"),
        },
    )

__all__ = [
    "AnalysisConfig",
    "AnalysisPredictor",
    "AttrType",
    "BackwardStrategy",
    "BlockDesc",
    "CPUPlace",
    "CpuPassStrategy",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "Dataset",
    "EOFException",
    "EnforceNotMet",
    "Executor",
    "ExecutorPrepareContext",
    "GpuPassStrategy",
    "Graph",
    "Layer",
    "LoDTensor",
    "LoDTensorArray",
    "NativeConfig",
    "NativePaddlePredictor",
    "Node",
    "OpDesc",
    "PaddleBuf",
    "PaddleDType",
    "PaddlePassBuilder",
    "PaddlePlace",
    "PaddlePredictor",
    "PaddleTensor",
    "Pass",
    "PassBuilder",
    "PassStrategy",
    "Place",
    "ProgramDesc",
    "Scope",
    "SelectedRows",
    "Tensor",
    "TrainerBase",
    "VarBase",
    "VarDesc",
    "Variable",
    "ZeroCopyTensor",
    "build_adjacency_list",
    "create_paddle_predictor",
    "diff_tensor_shape",
    "get_cuda_device_count",
    "get_grad_op_desc",
    "get_pass",
    "graph_num",
    "graph_safe_remove_nodes",
    "has_circle",
    "init_lod_tensor_blocking_queue",
    "is_compiled_with_cuda",
    "ops",
    "paddle_dtype_size",
    "prune",
    "prune_backward",
    "topology_sort",
]

_Scope = Scope


class Layer:
    """The former base class of Fluid's Layer; computes nothing."""

    def forward(self, inputs: list[VarBase]) -> list[VarBase]:
        """Returns no outputs."""
        return []


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


def globals() -> dict[str, Any]:
    """All flags; assign to set one."""
    return FLAGS


def size_of_dtype(dtype: VarType) -> int:
    """The size of an element in bytes."""
    return to_numpy_dtype(dtype).itemsize


def op_support_gpu(op_type: str) -> bool:
    """Whether an op runs on accelerators: true for all registered ops except host ops."""
    return lowering.has_op(op_type) and lowering.get_op(op_type).kind != "host"


def get_all_op_protos() -> list[bytes]:
    """The serialized protos of all registered ops."""
    return [op_proto(name).SerializeToString() for name in lowering.registered_ops()]


# One kernel for each op, place and data type: XLA makes them of what it meets.
_KERNEL = "data_type[{}]:data_layout[ANY_LAYOUT]:place[CPUPlace]:library_type[PLAIN]"
_KERNEL_TYPES = ("float", "double", "float16", "bool", "int", "int64_t", "int16_t", "int8_t", "uint8_t")


def _get_all_register_op_kernels() -> dict[str, list[str]]:
    """Maps ops to their kernels in Fluid's notation; ops that run blocks or run on the host have none.

    XLA compiles an op for whatever dtypes it is given; dtypes that an op rejects are not listed.
    """
    kernels = [_KERNEL.format(name) for name in _KERNEL_TYPES]
    return {name: list(kernels) for name in lowering.registered_ops() if lowering.get_op(name).kind == "plain"}


def _get_use_default_grad_op_desc_maker_ops() -> list[str]:
    """The ops whose gradient reads all their inputs, outputs and output gradients."""
    return [name for name in lowering.registered_ops() if has_grad_op_maker(name) and _reads_all(name)]


def _reads_all(op_type: str) -> bool:
    definition = lowering.get_op(op_type)
    if definition.forward is not None or not lowering.has_op(f"{op_type}_grad"):
        return False
    outs = [slot.name for slot in definition.outputs]
    whole = {*(slot.name for slot in definition.inputs), *outs, *map(_names.grad_var_name, outs)}
    return {slot.name for slot in lowering.get_op(f"{op_type}_grad").inputs} == whole


def has_grad_op_maker(op_type: str) -> bool:
    """Whether an op is registered and has a gradient.

    For a gradient op, only explicitly written gradients count: derived gradients exist for every order, whereas
    scripts descend from ``relu`` through ``relu_grad`` until there is no further gradient.
    """
    if not lowering.has_op(op_type):
        return False
    definition = lowering.get_op(op_type)
    return definition.differentiable if definition.forward is None else definition.has_written_gradient


has_non_empty_grad_op_maker = has_grad_op_maker


def is_float16_supported(place: Place) -> bool:
    """Whether ops can compute in float16 at a place; always True with XLA."""
    return True


def has_infer_inplace(op_type: str) -> bool:
    """Whether an op's layer binds an output to the variable of an input."""
    return lowering.has_op(op_type) and bool(lowering.get_op(op_type).inplace)


def infer_no_need_buffer_slots(op_type: str, inputs: Any, outputs: Any, attrs: Any) -> set[str]:
    """The input slots of which an op needs only shape and dtype, not values.

    Args:
        op_type: a registered op; raises lowering.UnknownOpError for any other.
        inputs, outputs, attrs: accepted for compatibility with Fluid; they do not affect the answer.
    """
    return {slot.name for slot in lowering.get_op(op_type).inputs if slot.wants == "meta"}


def _set_eager_deletion_mode(threshold: float, fraction: float, fast_mode: bool) -> None:
    """Set when unused variables are freed: stored as flags only; XLA frees buffers after their last use."""
    FLAGS["FLAGS_eager_delete_tensor_gb"] = float(threshold)
    FLAGS["FLAGS_memory_fraction_of_eager_deletion"] = float(fraction)
    FLAGS["FLAGS_fast_eager_deletion_mode"] = bool(fast_mode)


def _set_fuse_parameter_group_size(size: int) -> None:
    """Set the number of gradients per fused all-reduce: stored as a flag only; XLA combines collectives itself."""
    FLAGS["FLAGS_fuse_parameter_groups_size"] = int(size)


def _set_fuse_parameter_memory_size(size: float) -> None:
    """Set the size in MB of a fused all-reduce: stored as a flag only; XLA combines collectives itself."""
    FLAGS["FLAGS_fuse_parameter_memory_size"] = float(size)


def set_num_threads(num_threads: int) -> None:
    """Set the number of threads ops may use: stored as a flag only; XLA has its own pool."""
    FLAGS["FLAGS_paddle_num_threads"] = int(num_threads)


def init_gflags(args: list[str]) -> bool:
    """Process command-line flags; a no-op, since the environment is read on import."""
    return True


def init_glog(program: str) -> None:
    """Initialise logging; a no-op, since Python's ``logging`` needs none."""


def init_devices(init_p2p: bool = False) -> None:
    """Initialise devices; a no-op, since jax discovers them on first use."""


def get_op_attrs_default_value(op_type: str | bytes) -> dict[str, Any]:
    """The default values of an op's attributes; attributes without a default are omitted."""
    name = op_type.decode() if isinstance(op_type, bytes) else op_type
    specs = lowering.get_op(name).attrs.values()
    return {spec.name: spec.default for spec in specs if not spec.required}


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
