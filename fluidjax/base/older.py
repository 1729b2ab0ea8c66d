"""Names from Fluid 0.11 to 1.7 that have since been renamed or moved, for scripts that still use them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from fluidjax.base.unbuilt import Instead, unbuilt

_Function = TypeVar("_Function", bound=Callable[..., Any])
_RAGGED = "fluidjax.layers._control_flow.ragged"
_TRAINER = "fluidjax.legacy.trainer"
_CHECKPOINTS = "fluidjax.legacy.checkpoints"
_PERSISTABLES = "fluidjax.dygraph.persistables"
_FC = "fluidjax.dygraph._nn.named:FC"
_THREADS = Instead(
    "ops that run one after the other, in one step",
    "pass values between Python threads with queue.Queue, around exe.run",
)
_FILES = Instead("batches from a Python reader", "give the reader to fluid.DataFeeder or fluid.io.DataLoader")
_EVENTS = "Trainer BeginEpochEvent EndEpochEvent BeginStepEvent EndStepEvent CheckpointConfig Inferencer".split()
_CHANNELS = "Go make_channel channel_send channel_recv channel_close Select"
_KEPT = (
    "save_checkpoint load_checkpoint clean_checkpoint get_latest_checkpoint_serial"
    " save_persist_vars_without_grad load_persist_vars_without_grad"
)
_RECORDS = "open_recordio_file open_files random_data_generator Preprocessor shuffle batch parallel"

# module -> older name -> where it is now, as "module:name" or a module; or what there is in its place.
OLDER: dict[str, dict[str, str | Instead]] = {
    "fluidjax": {
        "learning_rate_decay": "fluidjax.layers.learning_rate_scheduler",
        "distribute_transpiler": "fluidjax.transpiler.distribute_transpiler",
        "memory_optimization_transpiler": "fluidjax.transpiler.memory_optimization_transpiler",
        **{name: f"{_TRAINER}:{name}" for name in _EVENTS},
        **dict.fromkeys(_CHANNELS.split(), _THREADS),
        "imperative": "fluidjax.dygraph",
        **dict.fromkeys(["trainer", "inferencer"], _TRAINER),
        "concurrency": "fluidjax.legacy.concurrency",
        "dygraph_grad_clip": "fluidjax.legacy.dygraph_grad_clip",
        "get_var": "fluidjax.framework:_get_var",
        "AsyncExecutor": Instead("Executor.train_from_dataset", "make a Dataset of the files and train from it"),
        "InferenceTranspiler": "fluidjax.legacy.inference_transpiler:InferenceTranspiler",
        "recordio_writer": _FILES,
    },
    "fluidjax.layers": {
        "lod_rank_table": f"{_RAGGED}:lod_rank_table",
        "max_sequence_len": f"{_RAGGED}:max_sequence_len",
        "lod_tensor_to_array": f"{_RAGGED}:lod_tensor_to_array",
        "array_to_lod_tensor": f"{_RAGGED}:array_to_lod_tensor",
        "shrink_memory": f"{_RAGGED}:shrink_memory",
        "split_lod_tensor": f"{_RAGGED}:split_lod_tensor",
        "merge_lod_tensor": f"{_RAGGED}:merge_lod_tensor",
        "ConditionalBlock": "fluidjax.layers._control_flow.branches:ConditionalBlock",
        "detection_map": "fluidjax.layers._detection.map:detection_map",
        "get_places": "fluidjax.layers.device:get_places",
        **dict.fromkeys(_RECORDS.split(), _FILES),
        "ParallelDo": "fluidjax.legacy.parallel_do:ParallelDo",
        "tree_conv": "fluidjax.contrib.layers:tree_conv",
    },
    "fluidjax.contrib": {
        **{name: f"{_TRAINER}:{name}" for name in _EVENTS},
        **dict.fromkeys(["trainer", "inferencer"], _TRAINER),
    },
    "fluidjax.dygraph": {
        "FC": _FC,
        **{name: f"{_PERSISTABLES}:{name}" for name in ("save_persistables", "load_persistables")},
    },
    "fluidjax.dygraph.nn": {"FC": _FC},
    "fluidjax.io": {
        **{name: f"{_CHECKPOINTS}:{name}" for name in _KEPT.split()},
        "load_trainer_args": f"{_CHECKPOINTS}:load_trainer_args_of",
    },
    "fluidjax.executor": {
        "fetch_var": "fluidjax.executor:_fetch_var",
        "switch_scope": "fluidjax.base.scope:_switch_scope",
    },
    "fluidjax.framework": {"get_var": "fluidjax.framework:_get_var", "unique_name": "fluidjax.unique_name"},
    "fluidjax.transpiler": {"InferenceTranspiler": "fluidjax.legacy.inference_transpiler:InferenceTranspiler"},
}

# Methods that Fluid 1.0 put an underscore before.
HIDDEN: dict[str, frozenset[str]] = {
    "Program": frozenset(
        """optimized_guard lr_schedule_guard get_desc create_block rollback sync_with_cpp copy_param_info_from
        copy_dist_param_info_from copy_data_info_from prune inference_optimize""".split()
    ),
    "Block": frozenset(
        """sync_with_cpp copy_param_info_from prepend_op insert_op remove_op slice_ops clone_variable rename_var
        var_recursive find_var_recursive""".split()
    ),
    "Operator": frozenset(
        """set_attr remove_attr rename_input rename_output block_attr block_attr_id blocks_attr blocks_attr_ids
        has_kernel""".split()
    ),
}


def older(module: str, name: str) -> Any:
    """The former meaning of ``name`` in a module, or None; removed features raise when used."""
    found = OLDER.get(module, {}).get(name)
    if found is None:
        return None
    if isinstance(found, Instead):
        return unbuilt(module, name, found)
    home, _, attribute = found.partition(":")
    return getattr(import_module(home), attribute) if attribute else import_module(home)


def hidden(value: object, kind: str, name: str) -> Any:
    """A method by its name before Fluid 1.0. Raises AttributeError if there was none."""
    if name not in HIDDEN[kind]:
        raise AttributeError(f"{kind!r} object has no attribute {name!r}")
    return getattr(value, f"_{name}")


# Arguments that functions had: "fluid.layers.fc" -> names. They chose a library, or did nothing.
ARGUMENTS: dict[str, tuple[str, ...]] = {}


def without(where: str, *names: str) -> Callable[[_Function], _Function]:
    """Let a function be called with arguments that it had before Fluid 1.8, and leave them out.

    Args:
        where: the function's module as Fluid calls it.
        names: the arguments, by name alone. They chose a library for Fluid's kernels, or did nothing there.
    """

    def decorate(function: _Function) -> _Function:
        ARGUMENTS[f"{where}.{function.__name__}"] = names

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            if kwargs and not gone.isdisjoint(kwargs):
                kwargs = {name: value for name, value in kwargs.items() if name not in gone}
            return function(*args, **kwargs)

        return called  # type: ignore[return-value]

    gone = frozenset(names)
    return decorate


def became(**settle: Callable[[Any, dict[str, Any], Any], None]) -> Callable[[_Function], _Function]:
    """Let a method be called with arguments that it had before Fluid 1.8, and that are settings now.

    Args:
        settle: for each of them, by name alone, what makes the setting: of the object, the call's other arguments by
            name, which it may add to, and the value.
    """

    def decorate(method: _Function) -> _Function:
        @functools.wraps(method)
        def called(self: Any, *args: Any, **kwargs: Any) -> Any:
            for name in settle.keys() & kwargs.keys():
                settle[name](self, kwargs, kwargs.pop(name))
            return method(self, *args, **kwargs)

        return called  # type: ignore[return-value]

    return decorate
