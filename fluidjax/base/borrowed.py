"""Names that Fluid's modules have because they import them: scripts take ``core`` from ``fluid.layers``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Lender -> what others import from it.
_LENDERS: dict[str, str] = {
    "fluidjax.backward": "_append_grad_suffix_ _some_in_set_ append_backward",
    "fluidjax.base.scope": "_switch_scope",
    "fluidjax.clip": "GradientClipBase GradientClipByNorm error_clip_callback",
    "fluidjax.compiler": "CompiledProgram",
    "fluidjax.core": "VarDesc",
    "fluidjax.data_feeder": "DataFeeder check_dtype check_type check_variable_and_dtype convert_dtype",
    "fluidjax.dygraph.base": "no_grad to_variable",
    "fluidjax.dygraph.layers": "Layer",
    "fluidjax.dygraph.learning_rate_scheduler": "LearningRateDecay",
    "fluidjax.executor": "Executor global_scope scope_guard",
    "fluidjax.framework": (
        "Block OpProtoHolder Operator ParamBase Parameter Program Variable _current_expected_place _dygraph_guard"
        " _dygraph_tracer _varbase_creator convert_np_dtype_to_dtype_ cpu_places default_main_program"
        " default_startup_program device_guard in_dygraph_mode name_scope program_guard"
    ),
    "fluidjax.initializer": "Constant Normal NumpyArrayInitializer Xavier",
    "fluidjax.ir.ir_graph": "IrGraph",
    "fluidjax.ir.wrapped": "IrNode IrOpNode IrVarNode",
    "fluidjax.layer_helper": "LayerHelper",
    "fluidjax.layers.control_flow": "BlockGuard",
    "fluidjax.layers.loss": "cross_entropy softmax_with_cross_entropy",
    "fluidjax.layers.nn": "logical_and logical_not logical_or",
    "fluidjax.layers.tensor": "assign cast concat fill_constant tensor_array_to_tensor zeros",
    "fluidjax.layers.utils": (
        "assert_same_structure convert_to_list copy_mutable_vars flatten hold_mutable_vars is_sequence"
        " map_structure pack_sequence_as"
    ),
    "fluidjax.param_attr": "ParamAttr",
}
# Modules that others import, by the name that they are imported under.
_MODULES: dict[str, str] = {
    "annotations": "fluidjax.annotations",
    "compiler": "fluidjax.compiler",
    "control_flow": "fluidjax.layers.control_flow",
    "core": "fluidjax.core",
    "detection": "fluidjax.layers.detection",
    "distribute_lookup_table": "fluidjax.distribute_lookup_table",
    "dygraph_utils": "fluidjax.dygraph_utils",
    "executor": "fluidjax.executor",
    "framework": "fluidjax.framework",
    "imperative_base": "fluidjax.dygraph.base",
    "layers": "fluidjax.layers",
    "learning_rate_scheduler": "fluidjax.dygraph.learning_rate_scheduler",
    "log_helper": "fluidjax.log_helper",
    "nn": "fluidjax.layers.nn",
    "ops": "fluidjax.layers.ops",
    "parallel_helper": "fluidjax.dygraph.parallel_helper",
    "reader": "fluidjax.reader",
    "sequence_lod": "fluidjax.layers.sequence_lod",
    "tensor": "fluidjax.layers.tensor",
    "unique_name": "fluidjax.unique_name",
    "utils": "fluidjax.layers.utils",
}
# Borrower -> the names that it imports and a script may take from it.
BORROWED: dict[str, str] = {
    "fluidjax": "annotations distribute_lookup_table log_helper",
    "fluidjax.backward": "check_type core framework unique_name",
    "fluidjax.clip": "core framework imperative_base layers",
    "fluidjax.compiler": "core framework",
    "fluidjax.data_feeder": "_current_expected_place core",
    "fluidjax.dygraph": "core framework",
    "fluidjax.dygraph.base": "core framework",
    "fluidjax.dygraph.checkpoint": "ParamBase core default_main_program in_dygraph_mode learning_rate_scheduler",
    "fluidjax.dygraph.jit": (
        "Block CompiledProgram Executor Layer Variable _current_expected_place _dygraph_guard _dygraph_tracer core"
        " scope_guard"
    ),
    "fluidjax.dygraph.layers": "ParamAttr core framework parallel_helper unique_name",
    "fluidjax.dygraph.nn": (
        "Constant Normal NumpyArrayInitializer OpProtoHolder ParamAttr Parameter Variable _dygraph_tracer"
        " _varbase_creator check_dtype check_type check_variable_and_dtype convert_dtype core cross_entropy"
        " default_main_program dygraph_utils in_dygraph_mode unique_name utils"
    ),
    "fluidjax.dygraph.parallel": "core framework no_grad parallel_helper to_variable",
    "fluidjax.executor": "Operator Variable compiler convert_dtype convert_np_dtype_to_dtype_ core _switch_scope",
    "fluidjax.framework": "IrGraph IrNode IrOpNode IrVarNode core",
    "fluidjax.initializer": "VarDesc check_dtype check_type check_variable_and_dtype core framework",
    "fluidjax.io": "CompiledProgram Executor core default_startup_program layers program_guard reader unique_name",
    "fluidjax.layer_helper": "Constant OpProtoHolder Xavier core in_dygraph_mode",
    "fluidjax.layers": "LayerHelper OpProtoHolder Variable core unique_name",
    "fluidjax.layers.control_flow": (
        "LayerHelper Operator Program Variable assert_same_structure assign cast check_dtype check_type"
        " check_variable_and_dtype convert_dtype copy_mutable_vars core fill_constant hold_mutable_vars"
        " in_dygraph_mode logical_and logical_not logical_or map_structure unique_name"
    ),
    "fluidjax.layers.detection": (
        "LayerHelper Variable check_dtype check_type check_variable_and_dtype convert_dtype nn ops"
        " softmax_with_cross_entropy tensor"
    ),
    "fluidjax.layers.io": (
        "BlockGuard DataFeeder check_dtype convert_np_dtype_to_dtype_ core global_scope program_guard"
    ),
    "fluidjax.layers.loss": "NumpyArrayInitializer ParamAttr core in_dygraph_mode nn",
    "fluidjax.layers.nn": (
        "Constant LayerHelper Normal NumpyArrayInitializer OpProtoHolder ParamAttr Variable _dygraph_tracer"
        " _varbase_creator assign cast check_dtype check_type check_variable_and_dtype concat convert_dtype"
        " convert_np_dtype_to_dtype_ core default_main_program device_guard dygraph_utils fill_constant"
        " in_dygraph_mode tensor_array_to_tensor unique_name utils zeros"
    ),
    "fluidjax.layers.ops": "convert_dtype convert_np_dtype_to_dtype_ core",
    "fluidjax.layers.rnn": (
        "LayerHelper ParamAttr Variable assert_same_structure check_dtype check_type check_variable_and_dtype"
        " control_flow convert_dtype convert_to_list copy_mutable_vars core default_main_program flatten"
        " hold_mutable_vars in_dygraph_mode is_sequence map_structure nn pack_sequence_as sequence_lod tensor utils"
    ),
    "fluidjax.layers.tensor": (
        "OpProtoHolder VarDesc _varbase_creator convert_np_dtype_to_dtype_ core device_guard utils"
    ),
    "fluidjax.layers.utils": "LayerHelper Variable check_dtype check_type check_variable_and_dtype convert_dtype",
    "fluidjax.metrics": "Variable detection",
    "fluidjax.nets": "convert_dtype",
    "fluidjax.optimizer": (
        "Constant GradientClipBase GradientClipByNorm LayerHelper LearningRateDecay Program Variable"
        " _append_grad_suffix_ _some_in_set_ append_backward core default_main_program default_startup_program"
        " device_guard error_clip_callback framework imperative_base layers name_scope no_grad ops program_guard"
        " tensor unique_name"
    ),
    "fluidjax.parallel_executor": "check_type compiler core executor framework",
    "fluidjax.param_attr": "check_type",
    "fluidjax.profiler": "core",
    "fluidjax.reader": (
        "DataFeeder Program _current_expected_place core cpu_places default_main_program default_startup_program"
        " global_scope program_guard"
    ),
    "fluidjax.regularizer": "_varbase_creator core framework",
}
_LENDER = {name: lender for lender, names in _LENDERS.items() for name in names.split()}


def borrowed(module: str, name: str) -> Any:
    """What a module has under a name because Fluid's imports it; None if it is no such name."""
    if name not in BORROWED.get(module, "").split():
        return None
    if name in _MODULES:
        return import_module(_MODULES[name])
    return getattr(import_module(_LENDER[name]), name)
