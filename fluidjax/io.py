"""``fluid.io``: saving and loading, in Paddle's formats; readers and loaders.

Files are treated as untrusted: every length is checked against the file size before allocation, pickles execute no
code, names cannot escape their directory, and the Scope changes only once everything has been loaded and validated.
Saves are atomic: a process killed while saving leaves either the old files or the new.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fluidjax.base.enums import VarType
from fluidjax.base.scope import global_scope
from fluidjax.base.tracebacks import shortened
from fluidjax.base.unknown import unknown_name
from fluidjax.data_feeder import DataFeeder as DataFeeder
from fluidjax.dataloader import BatchSampler, Dataset  # noqa: F401  (scripts look for them here)
from fluidjax.execution.python_functions import bind_py_func, bind_py_layer
from fluidjax.files import host_ops, inference, remote, state, variables
from fluidjax.files.errors import FileFormatError, MismatchError, UnsafeNameError, UntrustedProgramError
from fluidjax.files.scope_values import UninitializedVariableError
from fluidjax.files.trust import allow_host_ops
from fluidjax.files.variables import is_belong_to_optimizer as is_belong_to_optimizer
from fluidjax.files.variables import is_parameter, is_persistable
from fluidjax.files.variables import program_of as _get_valid_program  # noqa: F401  (Paddle's tests ask for it)
from fluidjax.framework import Parameter, Program, Variable, default_main_program
from fluidjax.paddle.batch import batch
from fluidjax.paddle.reader import (
    ComposeNotAligned,
    buffered,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    multiprocess_reader,
    shuffle,
    xmap_readers,
)
from fluidjax.reader import DataLoader, PyReader, default_collate_fn

__all__ = [
    "save_vars",
    "save_params",
    "save_persistables",
    "load_vars",
    "load_params",
    "load_persistables",
    "save_inference_model",
    "load_inference_model",
    "batch",
    "save",
    "load",
    "load_program_state",
    "set_program_state",
    "get_program_parameter",
    "get_program_persistable_vars",
    "DataLoader",
    "PyReader",
    "default_collate_fn",
    "cache",
    "map_readers",
    "buffered",
    "compose",
    "chain",
    "shuffle",
    "ComposeNotAligned",
    "firstn",
    "xmap_readers",
    "multiprocess_reader",
    "FileFormatError",
    "MismatchError",
    "UninitializedVariableError",
    "UnsafeNameError",
    "UntrustedProgramError",
    "allow_host_ops",
    "bind_py_func",
    "bind_py_layer",
]

host_ops.install()

Predicate = Callable[[Variable], bool]


def _clone_var_in_block_(block: Any, var: Variable) -> Variable:
    """Declare a persistable variable in a block, like another. Raises AssertionError for anything else."""
    if not isinstance(var, Variable):
        raise AssertionError(
            f"_clone_var_in_block_: {var!r} is no Variable: expected one. Pass the variable, not its name"
        )
    lod = {"lod_level": var.lod_level} if var.type == VarType.LOD_TENSOR else {}
    return block.create_var(name=var.name, shape=var.shape, dtype=var.dtype, type=var.type, persistable=True, **lod)


@shortened
def save_vars(
    executor: Any,
    dirname: str | None,
    main_program: Program | None = None,
    vars: Sequence[Variable] | None = None,
    predicate: Predicate | None = None,
    filename: str | None = None,
) -> bytes | None:
    """Save variables of the global scope to a directory.

    Args:
        executor: accepted for compatibility with Fluid.
        dirname: the directory, created if missing; None without a filename: return the bytes of the combined file.
        main_program: where to apply ``predicate``; the default main program if None.
        vars: the variables to save; alternatively
        predicate: a function that selects variables.
        filename: one file for all, in order of names; otherwise each variable is saved to a file of its own name.

    Raises UninitializedVariableError, without writing anything, if a variable has no value.
    """
    program = variables.program_of(main_program)
    found = variables.chosen(program, vars, predicate)
    remote.check_here(program, found)
    return variables.save(found, dirname, filename)


@shortened
def save_params(
    executor: Any, dirname: str | None, main_program: Program | None = None, filename: str | None = None
) -> bytes | None:
    """``save_vars`` of the program's parameters."""
    return save_vars(executor, dirname, main_program, predicate=is_parameter, filename=filename)


@shortened
def save_persistables(
    executor: Any, dirname: str | None, main_program: Program | None = None, filename: str | None = None
) -> bytes | None:
    """``save_vars`` of all persistable variables: parameters, learning rate, moments, statistics.

    For a trainer's program (see ``DistributeTranspiler``), trainer 0 also saves the state held by parameter servers.
    """
    if main_program is not None and getattr(main_program, "_is_distributed", False):
        remote.save(executor, _folder(dirname), main_program)
        return None
    return save_vars(executor, dirname, main_program, predicate=is_persistable, filename=filename)


@shortened
def load_vars(
    executor: Any,
    dirname: str | None,
    main_program: Program | None = None,
    vars: Sequence[Variable] | None = None,
    predicate: Predicate | None = None,
    filename: str | bytes | None = None,
) -> None:
    """Load variables into the global scope; arguments as for ``save_vars``.

    With ``dirname`` None, ``filename`` is the content of the combined file. Raises FileNotFoundError, FileFormatError
    for a corrupt file, and MismatchError for a shape or dtype other than declared in the program; the scope is then
    left unchanged.

    Examples:
        >>> y = fluid.layers.fc(fluid.data("x", [None, 4]), 2, param_attr="w", bias_attr="b")
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> startup = exe.run(fluid.default_startup_program())
        >>> fluid.io.save_persistables(exe, "folder")
        >>> with fluid.scope_guard(fluid.Scope()):
        ...     fluid.io.load_vars(exe, "folder", predicate=lambda var: var.name == "w")
        ...     fluid.global_scope().local_var_names()
        ['w']
    """
    program = variables.program_of(main_program)
    variables.load(variables.chosen(program, vars, predicate), dirname, filename)


@shortened
def load_params(
    executor: Any, dirname: str | None, main_program: Program | None = None, filename: str | bytes | None = None
) -> None:
    """``load_vars`` of the program's parameters."""
    load_vars(executor, dirname, main_program, predicate=is_parameter, filename=filename)


@shortened
def load_persistables(
    executor: Any, dirname: str | None, main_program: Program | None = None, filename: str | bytes | None = None
) -> None:
    """``load_vars`` of all persistable variables; for the program of a parameter server, of its shards."""
    if main_program is not None and getattr(main_program, "_is_distributed", False):
        remote.load(_folder(dirname), main_program)
        return
    load_vars(executor, dirname, main_program, predicate=is_persistable, filename=filename)


def _save_persistable_nodes(executor: Any, dirname: str, graph: Any) -> None:
    """``save_vars`` of the persistable variables of an IrGraph."""
    save_vars(executor, dirname, vars=_variables_of(graph))


def _load_persistable_nodes(executor: Any, dirname: str, graph: Any) -> None:
    """``load_vars`` of the persistable variables of an IrGraph that have a file; warns about the others."""
    found = _variables_of(graph)
    absent = [var.name for var in found if not os.path.exists(os.path.join(dirname, var.name))]
    if absent:
        warnings.warn(f"_load_persistable_nodes: {dirname} has no file of {', '.join(absent)}", stacklevel=2)
    load_vars(executor, dirname, vars=[var for var in found if var.name not in absent])


def _variables_of(graph: Any) -> list[Variable]:
    descs = {node.name(): node.var() for node in graph.all_persistable_nodes()}
    block = Program().global_block()
    return [
        block.create_var(
            name=name,
            shape=desc.shape(),
            dtype=desc.dtype(),
            type=desc.type(),
            lod_level=desc.lod_level(),
            persistable=True,
        )
        for name, desc in sorted(descs.items())
        if desc.type() not in (VarType.RAW, VarType.READER, VarType.FEED_MINIBATCH, VarType.FETCH_LIST)
    ]


def _folder(dirname: str | None) -> str:
    if dirname is None:
        raise ValueError("the files of a distributed job need a folder: pass dirname")
    return os.path.normpath(dirname)


@shortened
def save_inference_model(
    dirname: str,
    feeded_var_names: Sequence[str] | str,
    target_vars: Sequence[Variable] | Variable,
    executor: Any,
    main_program: Program | None = None,
    model_filename: str | None = None,
    params_filename: str | None = None,
    export_for_deployment: bool = True,
    program_only: bool = False,
) -> list[str]:
    """Save the part of a program that computes ``target_vars`` from the given feeds, with the parameters it uses.

    Args:
        dirname: the directory, created if missing.
        feeded_var_names: names of the variables to feed.
        target_vars: the variables to compute.
        executor: asks the servers of a trainer's program for its tables, with the state of updates.
        main_program: the program, left unchanged; None for the default main program.
        model_filename: file name of the program; ``__model__`` if None.
        params_filename: a single file for all parameters; None for one file each.
        export_for_deployment: prune the program; otherwise it is saved whole, as ``<model>.main_program``.
        program_only: do not save the parameters.

    Returns the names of the fetched variables. Raises ValueError for names not in the program.

    Examples:
        >>> x = fluid.data("x", [None, 4])
        >>> y = fluid.layers.fc(x, 2)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> startup = exe.run(fluid.default_startup_program())
        >>> fluid.io.save_inference_model("model", ["x"], [y], exe)
        ['save_infer_model/scale_0.tmp_0']
    """
    program = variables.program_of(main_program)
    return inference.save(
        dirname,
        feeded_var_names,
        target_vars,
        program,
        model_filename,
        params_filename,
        export_for_deployment,
        program_only,
        executor,
    )


@shortened
def load_inference_model(
    dirname: str | None,
    executor: Any,
    model_filename: str | bytes | None = None,
    params_filename: str | bytes | None = None,
    pserver_endpoints: Sequence[str] | None = None,
) -> list[Any]:
    """Load a model saved by ``save_inference_model``; its parameters are placed in the global scope.

    Args:
        dirname: the directory; None if the file names are the contents of the files (bytes).
        executor: accepted for compatibility with Fluid.
        model_filename, params_filename: as passed to ``save_inference_model``.
        pserver_endpoints: accepted for compatibility with Fluid; has no effect.

    Returns [program, names to feed, variables to fetch]. Raises ValueError (FileFormatError, MismatchError) or
    FileNotFoundError if anything is wrong, leaving the scope unchanged. Ops of the program that act on the host are
    only allowed to run after ``fluid.io.allow_host_ops(program)``.

    Examples:
        >>> y = fluid.layers.fc(fluid.data("x", [None, 4]), 2)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> startup = exe.run(fluid.default_startup_program())
        >>> saved = fluid.io.save_inference_model("model", ["x"], [y], exe)
        >>> program, feeds, fetches = fluid.io.load_inference_model("model", exe)
        >>> exe.run(program, feed={feeds[0]: np.ones((3, 4), "float32")}, fetch_list=fetches)[0].shape
        (3, 2)
    """
    return list(inference.load(dirname, model_filename, params_filename))


def get_inference_program(target_vars: Any, main_program: Program | None = None) -> Program:
    """The part of a program that computes the targets, for inference; from Fluid up to 1.5.

    Args:
        target_vars: variables, or evaluators, which stand for their metrics and states.
        main_program: the default main program if None.
    """
    listed = target_vars if isinstance(target_vars, (list, tuple)) else [target_vars]
    names = [v.name for t in listed for v in ([*t.states, *t.metrics] if hasattr(t, "metrics") else [t])]
    return variables.program_of(main_program)._prune_with_input([], names)._inference_optimize()


def prepend_feed_ops(
    inference_program: Program, feed_target_names: Sequence[str], feed_holder_name: str = "feed"
) -> None:
    """Prepend a feed op for each name to the program."""
    inference.prepend_feed_ops(inference_program, feed_target_names, feed_holder_name)


def append_fetch_ops(
    inference_program: Program, fetch_target_names: Sequence[str], fetch_holder_name: str = "fetch"
) -> None:
    """Append a fetch op for each name."""
    inference.append_fetch_ops(inference_program, fetch_target_names, fetch_holder_name)


@shortened
def save(program: Program, model_path: str) -> None:
    """Save ``model_path`` + .pdparams (parameters), .pdopt (other persistables) and .pdmodel (the program).

    Examples:
        >>> y = fluid.layers.fc(fluid.data("x", [None, 4]), 2)
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> startup = exe.run(fluid.default_startup_program())
        >>> fluid.save(fluid.default_main_program(), "checkpoint/step_1")
        >>> sorted(os.listdir("checkpoint"))
        ['step_1.pdmodel', 'step_1.pdopt', 'step_1.pdparams']
    """
    state.save(variables.program_of(program), model_path)


@shortened
def load(program: Program, model_path: str, executor: Any = None, var_list: Sequence[Variable] | None = None) -> None:
    """Load what was saved by ``fluid.save``, or by save_params, save_persistables or save_vars, into the global scope.

    Args:
        program: its persistable variables are loaded; all must be present in the files.
        model_path: as passed to ``save``, with or without an extension.
        executor: required for files saved by the other functions.
        var_list: required if those are combined in one file: the variables it was saved with.

    Raises FileFormatError or MismatchError if anything is wrong, leaving the scope unchanged.

    Examples:
        >>> y = fluid.layers.fc(fluid.data("x", [None, 4]), 2, param_attr="w")
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> startup = exe.run(fluid.default_startup_program())
        >>> fluid.save(fluid.default_main_program(), "saved")
        >>> with fluid.scope_guard(fluid.Scope()):
        ...     fluid.load(fluid.default_main_program(), "saved", exe)
        ...     np.array(fluid.global_scope().find_var("w").get_tensor()).shape
        (4, 2)
    """
    state.load(variables.program_of(program), model_path, executor, var_list)


@shortened
def load_program_state(model_path: str, var_list: Sequence[Variable] | None = None) -> dict[str, np.ndarray]:
    """The values stored in a model's files, by name; arguments as for ``load``."""
    return state.load_program_state(model_path, var_list)


@shortened
def set_program_state(program: Program, state_dict: Mapping[str, np.ndarray]) -> None:
    """Set the program's persistable variables in the global scope from a dict of arrays.

    Variables missing from the dict keep their values; names not in the program cause a warning. Raises
    MismatchError, without setting anything, if a shape or dtype differs.
    """
    state.set_program_state(variables.program_of(program), state_dict)


def get_program_parameter(program: Program) -> list[Variable]:
    """The program's parameters."""
    return [var for var in program.list_vars() if is_parameter(var)]


def get_program_persistable_vars(program: Program) -> list[Variable]:
    """The program's persistable variables."""
    return [var for var in program.list_vars() if is_persistable(var)]


def get_parameter_value(para: Parameter, executor: Any) -> np.ndarray:
    """The value of a parameter in the global scope."""
    if not is_parameter(para):
        raise AssertionError(
            f"The input variable is not parameter: received {getattr(para, 'name', para)!r}; pass a fluid.Parameter"
        )
    found = global_scope().find_var(para.name)
    if found is None or found._holder is None:
        raise UninitializedVariableError(
            f"parameter {para.name!r} has no value in the global scope; run the startup program first"
        )
    return np.array(found.get_tensor())


def get_parameter_value_by_name(name: str, executor: Any, program: Program | None = None) -> np.ndarray:
    """The value of the parameter with the given name in the global scope."""
    program = default_main_program() if program is None else program
    return get_parameter_value(program.global_block().var(name), executor)  # type: ignore[arg-type]


__getattr__ = unknown_name(__name__)
