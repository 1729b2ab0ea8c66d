"""``fluid.save`` and ``fluid.load``: a model in three files, .pdparams, .pdopt and .pdmodel."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fluidjax.base.errors import explain
from fluidjax.base.scope import global_scope
from fluidjax.files import atomic, pickles, remote, variables
from fluidjax.files.compatible import stamp
from fluidjax.files.cursor import Cursor
from fluidjax.files.errors import FileFormatError, MismatchError, bad_file
from fluidjax.files.scope_values import check_array_fits, check_savable, put, value_of
from fluidjax.files.tensor import DenseValue, decode
from fluidjax.framework import Program, Variable
from fluidjax.proto import framework_pb2 as pb

PARAMS, OPTIMIZER, MODEL = ".pdparams", ".pdopt", ".pdmodel"


def save(program: Program, model_path: str) -> None:
    """Write ``model_path`` + .pdparams, .pdopt and .pdmodel as one step."""
    directory, base = os.path.split(model_path)
    if not base:
        raise AssertionError(
            explain(
                "the model needs a name",
                "a path like folder/name",
                repr(model_path),
                "the file names are made of it: folder/name.pdparams, ...",
            )
        )
    parts = {
        PARAMS: [var for var in program.list_vars() if variables.is_parameter(var)],
        OPTIMIZER: [var for var in program.list_vars() if variables.is_belong_to_optimizer(var)],
    }
    scope = global_scope()
    with scope._lock:  # what is written is of one step
        for part in parts.values():
            remote.check_here(program, part)
            check_savable(scope, part)
        arrays = {end: _arrays(part) for end, part in parts.items()}
    files = {base + end: [pickles.dumps(part)] for end, part in arrays.items()}
    message = pb.ProgramDesc()
    message.CopyFrom(program.proto)
    stamp(message)
    files[base + MODEL] = [message.SerializePartialToString()]
    atomic.write_files(directory, files)


def _arrays(part: Sequence[Variable]) -> dict[str, np.ndarray]:
    return {var.name: value_of(global_scope(), var.name).array for var in part}


def load(program: Program, model_path: str, executor: Any, var_list: Iterable[Variable] | None) -> None:
    """Read what ``save`` (or save_params and its like) wrote into the global scope: all of it, or nothing."""
    prefix = _prefix(model_path)
    if not _exists(prefix + PARAMS):
        _load_other(program, prefix, executor, var_list)
        return
    values: dict[str, DenseValue] = {}
    with atomic.reading(os.path.dirname(prefix)):
        for end, wanted in ((PARAMS, variables.is_parameter), (OPTIMIZER, variables.is_belong_to_optimizer)):
            part = [var for var in program.list_vars() if wanted(var)]
            if part:
                values |= _taken(part, _read(prefix + end), prefix + end)
    put(global_scope(), values)


def _taken(part: Sequence[Variable], arrays: Mapping[str, Any], label: str) -> dict[str, DenseValue]:
    values = {}
    for var in part:
        if var.name not in arrays:
            raise MismatchError(
                explain(
                    f"Can not find [{var.name}] in model file [{label}]",
                    f"all {len(part)} variables of the program",
                    f"{len(arrays)} others: {', '.join(list(arrays)[:8])}",
                    "load the file into the program it was saved from",
                )
            )
        array = arrays[var.name]
        if not isinstance(array, np.ndarray):
            raise bad_file(f"{label}: {var.name!r} is no array", "an array of numbers", type(array).__name__)
        check_array_fits(var, array.shape, array.dtype, label)
        values[var.name] = DenseValue(np.array(array, order="C"))
    return values


def _prefix(path: str) -> str:
    for end in (PARAMS, OPTIMIZER, MODEL):
        if path.endswith(end):
            return path[: -len(end)]
    return path


def _exists(path: str) -> bool:
    directory, name = os.path.split(path)
    return bool(name) and os.path.isfile(atomic.newest(directory, name))


def _read(path: str) -> dict[str, Any]:
    if not _exists(path):
        raise MismatchError(
            explain(
                f"Optimizer file [{path}] not exits",
                "the file beside the parameters that fluid.save wrote with them",
                "no such file",
                "copy it there, or load into a program without an optimizer (build it before minimize())",
            )
        )
    with atomic.open_newest(*os.path.split(path)) as file:
        return pickles.loads(file.read(), path)


# ---- files of save_params, save_persistables, save_vars ----


def _load_other(program: Program, path: str, executor: Any, var_list: Iterable[Variable] | None) -> None:
    warnings.warn(
        f"{path}{PARAMS} not found, try to load model file saved with [ save_params, save_persistables, save_vars ]",
        stacklevel=3,
    )
    _need(executor, "executor", path)
    if os.path.isdir(path):
        wanted = variables.chosen(program, var_list, variables.is_persistable)
        present = [var for var in wanted if os.path.isfile(atomic.newest(path, var.name))]
        if var_list is not None and len(present) < len(wanted):
            present = wanted  # so that the missing one is named
        variables.load(present, path, None)
    elif os.path.isfile(path):
        _need(var_list, "var_list", path)
        variables.load(_of_program(program, list(var_list or ())), *os.path.split(path))
    else:
        raise _no_file(path)


def _of_program(program: Program, var_list: list[Variable]) -> list[Variable]:
    names = {var.name for var in program.list_vars()}
    for var in var_list:
        if var.name not in names:
            raise LookupError(
                explain(
                    f"loaded var [{var.name}] is not in program variable list",
                    "variables of the program, whatever else is in the file",
                    repr(var.name),
                    "pass fluid.io.get_program_persistable_vars(program), or load into the program it belongs to",
                )
            )
    return var_list


def _need(argument: Any, name: str, path: str) -> None:
    if argument is None:
        raise ValueError(
            explain(
                f"cannot load {path!r}: there is no {path}{PARAMS}, so it must come from save_params and its like",
                f"{name} is required when loading model file saved with [ save_params, save_persistables, save_vars ]",
                f"{name}=None",
                f"pass {name}, or the path that fluid.save was given",
            )
        )


def _no_file(path: str) -> FileNotFoundError:
    return FileNotFoundError(
        explain(
            f"there is no model at {path!r}",
            f"{path}{PARAMS}, or a folder or file that save_params or its like wrote",
            "nothing of these names",
            "check the path",
        )
    )


# ---- states as dicts ----


def load_program_state(model_path: str, var_list: Iterable[Variable] | None) -> dict[str, np.ndarray]:
    """The values in a model's files by name; nothing is set."""
    prefix = _prefix(model_path)
    var_list = None if var_list is None else list(var_list)
    if _exists(prefix + PARAMS):
        with atomic.reading(os.path.dirname(prefix)):
            found = _read(prefix + PARAMS)
            if _exists(prefix + OPTIMIZER):
                found |= _read(prefix + OPTIMIZER)
        return {name: np.array(value) for name, value in found.items() if isinstance(value, np.ndarray)}
    warnings.warn(
        f"{prefix}{PARAMS} not found, try to load model file saved with [ save_params, save_persistables, save_vars ]",
        stacklevel=3,
    )
    for var in var_list or ():
        if not isinstance(var, Variable):
            raise TypeError(
                explain("value in var_list must be variable", "Variables", repr(var), "pass program.list_vars()")
            )
    if os.path.isdir(prefix):
        names = [var.name for var in var_list] if var_list is not None else None
        with atomic.reading(prefix):
            return _folder_state(prefix, names)
    if os.path.isfile(prefix):
        _need(var_list, "var_list", prefix)
        read = variables.read(var_list or [], *os.path.split(prefix))
        return {name: value.array for name, value in read.items()}
    raise _no_file(prefix)


def _folder_state(folder: str, names: list[str] | None) -> dict[str, np.ndarray]:
    state, skipped = {}, []
    for name in atomic.names(folder) if names is None else names:
        try:
            with variables.open_file(folder, name) as file:
                cursor = Cursor(file, os.path.join(folder, name))
                value = decode(cursor)
                cursor.end()
        except FileFormatError:
            if names is not None:
                raise
            skipped.append(name)
            continue
        state[name] = value.array
    if skipped:
        warnings.warn(f"these files of {folder!r} hold no variable and were left out: {skipped}", stacklevel=4)
    return state


def set_program_state(program: Program, state: Mapping[str, Any]) -> None:
    """Set the program's persistable variables from a dict of arrays; names that it lacks are reported."""
    wanted = {var.name: var for var in program.list_vars() if variables.is_persistable(var)}
    values = {}
    for name, var in wanted.items():
        if name in state:
            array = np.array(state[name])
            check_array_fits(var, array.shape, array.dtype, "set_program_state")
            values[name] = DenseValue(array)
    put(global_scope(), values)
    unused = [name for name in state if name not in wanted]
    if unused:
        warnings.warn(
            "This list is not set, Because of Paramerter not found in program. There are: " + " ".join(unused),
            stacklevel=3,
        )
