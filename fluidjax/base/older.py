"""What Fluid 0.11 to 1.7 called otherwise, or kept elsewhere: names that scripts of those days still use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fluidjax.base.unbuilt import Instead, unbuilt

_RAGGED = "fluidjax.layers._control_flow.ragged"
_LOOP = Instead("exe.run in a loop over batches, and fluid.io's functions to save", "write the loop as the book does")
_FILES = Instead("batches from a Python reader", "give the reader to fluid.DataFeeder or fluid.io.DataLoader")
_FOLD = Instead("the model as it is: batch norms fold when it is optimized", "use `fluidjax optimize`, or leave it out")
_EVENTS = "Trainer Inferencer BeginEpochEvent EndEpochEvent BeginStepEvent EndStepEvent CheckpointConfig"
_RECORDS = "open_recordio_file open_files random_data_generator Preprocessor shuffle batch parallel"

# module -> older name -> where it is now, as "module:name" or a module; or what there is in its place.
OLDER: dict[str, dict[str, str | Instead]] = {
    "fluidjax": {
        "learning_rate_decay": "fluidjax.layers.learning_rate_scheduler",
        "distribute_transpiler": "fluidjax.transpiler.distribute_transpiler",
        "memory_optimization_transpiler": "fluidjax.transpiler.memory_optimization_transpiler",
        **dict.fromkeys(_EVENTS.split(), _LOOP),
        "AsyncExecutor": Instead("Executor.train_from_dataset", "make a Dataset of the files and train from it"),
        "InferenceTranspiler": _FOLD,
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
        "ParallelDo": Instead("CompiledProgram.with_data_parallel", "build the network once and compile it for places"),
    },
    "fluidjax.executor": {
        "fetch_var": "fluidjax.executor:_fetch_var",
        "switch_scope": "fluidjax.base.scope:_switch_scope",
    },
    "fluidjax.framework": {"get_var": "fluidjax.framework:_get_var", "unique_name": "fluidjax.unique_name"},
    "fluidjax.transpiler": {"InferenceTranspiler": _FOLD},
}

# Methods that Fluid 1.0 put an underscore before.
HIDDEN: dict[str, frozenset[str]] = {
    "Program": frozenset(
        """optimized_guard lr_schedule_guard get_desc create_block rollback sync_with_cpp copy_param_info_from
        copy_dist_param_info_from copy_data_info_from prune inference_optimize""".split()
    ),
    "Block": frozenset("sync_with_cpp copy_param_info_from".split()),
}


def older(module: str, name: str) -> Any:
    """What ``name`` was in a module, None where it was nothing; what is not there any more tells so when it is used."""
    found = OLDER.get(module, {}).get(name)
    if found is None:
        return None
    if isinstance(found, Instead):
        return unbuilt(module, name, found)
    home, _, attribute = found.partition(":")
    return getattr(import_module(home), attribute) if attribute else import_module(home)


def hidden(value: object, kind: str, name: str) -> Any:
    """A method by the name that it had before Fluid 1.0; AttributeError where there was none."""
    if name not in HIDDEN[kind]:
        raise AttributeError(f"{kind!r} object has no attribute {name!r}")
    return getattr(value, f"_{name}")
