"""A name with an underscore stays in its module: what is shared is public, or it is Fluid's own."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.architecture.test_imports import MODULES, parsed

# Fluid 1.8.5 has them, and hands them on.
FLUIDS = {
    ("fluidjax.framework", "_current_expected_place"),
    ("fluidjax.framework", "_dygraph_tracer"),
    ("fluidjax.framework", "_varbase_creator"),
    ("fluidjax.layers._schedules.epochs", "_LearningRateEpochDecay"),
    ("fluidjax.layers._tensor.elementwise", "_elementwise_op"),
    # Of fluid.core.
    ("fluidjax.native.children", "_erase_process_pids"),
    ("fluidjax.native.children", "_set_process_pids"),
    ("fluidjax.native.children", "_set_process_signal_handler"),
    ("fluidjax.native.children", "_throw_error_if_process_failed"),
    ("fluidjax.native.dicts", "_create_loaded_parameter"),
    ("fluidjax.native.dicts", "_load_dygraph_dict"),
    ("fluidjax.native.dicts", "_load_static_dict"),
    ("fluidjax.native.dicts", "_save_dygraph_dict"),
    ("fluidjax.native.dicts", "_save_static_dict"),
    ("fluidjax.native.eager", "_switch_tracer"),
    ("fluidjax.native.library", "_dygraph_debug_level"),
    ("fluidjax.native.library", "_is_dygraph_debug_enabled"),
    ("fluidjax.native.library", "_is_program_version_supported"),
    ("fluidjax.native.registered", "_get_all_register_op_kernels"),
    ("fluidjax.native.registered", "_get_use_default_grad_op_desc_maker_ops"),
    ("fluidjax.native.settings", "_set_eager_deletion_mode"),
    ("fluidjax.native.settings", "_set_fuse_parameter_group_size"),
    ("fluidjax.native.settings", "_set_fuse_parameter_memory_size"),
    ("fluidjax.readers.tensor_queue", "_convert_to_tensor_list"),
}
# Methods and fields that Fluid's own classes have in 1.8.5.
FLUIDS_FIELDS = set(
    """
    _appending_grad_times _backward_role_guard _block_attr _block_attr_id _blocks_attr_ids _clone_variable
    _complete_op _construct_from_desc _copy _copy_dist_param_info_from _create_block _distributed_lookup_table
    _drop_last _dtype _endpoints _enter_decoder _executor _find_var_recursive _fleet_opt _gen_worker_desc _get_info
    _get_no_grad_set _get_vars_info _grad_ivar _grad_name _has_kernel _helper
    _hierarchical_allreduce_inter_nranks
    _inference_optimize _inputs _insert_op _is_chief _is_distributed _is_initialized _is_optimize_op _learning_rate
    _learning_rate_map _leave_decoder _lr_schedule_guard _mode _nccl_comm_num _need_clip_func _op_role
    _optimized_guard _origin_program _parameters _parameters_on_pservers _pipeline_opt _place _prepend_op _program
    _prune_with_input _ps_endpoint _remove_attr _remove_op _remove_var _rename_input _rename_output _rename_var
    _role_maker _rollback _set_attr _set_checkpoints _set_copy_table_config _set_default_bias_initializer
    _set_default_initializer _set_default_param_initializer _set_device_worker _set_dims _set_fleet_desc
    _set_forward_block_idx _set_info _set_server_config
    _slice_ops _stop_gradient _sub_layers _sync_with_cpp _to_attr _to_kwargs _train_mode _trainers_endpoints
    _use_double_buffer _use_hierarchical_allreduce _use_lamb _value _var_recursive _varbase_creator
""".split()
)
# What is ours in Fluid's own classes (Program, Block, Operator, Variable, Scope, LoDTensor, places, VarBase, Tracer,
# readers, CompiledProgram, AnalysisConfig, StateCell). Their public names are Fluid's and no others, so that a script
# sees what it would see there.
OUR_FIELDS = set(
    """
    _append_op_desc _array _attr_map _bind _bump _captures _cells _copy_info_from _copy_var_info_from _declared
    _derived _descs_changed _device _first _fresh _grad _gradient_value _has_run_at _held _holder _input_map
    _keeps_gradient
    _loaded_from _lock _lod _mentions _model _name_scope_path _of _op_changed _origin_blocks _output_map _raw_generation
    _rows _run_at _set_gradient _set_value _spec _stored _name _sub_block_ids _temporary _vars _version_token
    _view _view_cache _written
""".split()
)
# Those of graphs and their nodes: IrGraph's and the passes' of Fluid, and ours.
FLUIDS_FIELDS |= {"_find_node_by_name", "_supported_quantizable_op_type"}
OUR_FIELDS |= set(
    """
    _as_program _changed _desc _in_order _kind _made _nodes _outputs _remove_all _take _without _write
""".split()
)
# Python's, and protobuf's.
PYTHONS = set("_replace _attributes _exit _getframe _repr_html_ _repr_pretty_".split())
PROTOBUFS = set("_serialized_start _serialized_end _options _USE_C_DESCRIPTORS".split())


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _taken(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(module, private name) of what a module imports, or reads from a module that it imports."""
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in MODULES:
                    modules[alias.asname or alias.name] = inner
                elif _private(alias.name) and (node.module or "").split(".")[0] in ("fluidjax", "lowering"):
                    yield node.module or "", alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            if _private(node.attr):
                yield modules[node.value.id], node.attr


def test_private_names_stay_in_their_module() -> None:
    assert {taken for path in MODULES.values() for taken in _taken(parsed(path))} == FLUIDS


def _defined(tree: ast.Module) -> set[str]:
    """Names that a module gives to functions, classes, variables and fields."""
    found = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            found.add(node.attr)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):  # __slots__
            found.add(node.value)
    return found


def test_private_fields_are_used_where_they_are_defined_or_are_of_fluids_classes() -> None:
    used = defaultdict(set)
    for name, path in MODULES.items():
        tree = parsed(path)
        defined = _defined(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and _private(node.attr) and node.attr not in defined:
                if ast.unparse(node.value) not in ("self", "cls"):
                    used[node.attr].add(name)
    known = FLUIDS_FIELDS | OUR_FIELDS | PYTHONS | PROTOBUFS
    assert {field: modules for field, modules in used.items() if field not in known} == {}
    assert sorted((FLUIDS_FIELDS | OUR_FIELDS) - set(used)) == []
