"""Files of named tensors, as ``fluid.core`` writes and reads them below ``fluid.save``.

    256 bytes that mean nothing | TNUM | uint64 count | per tensor: NAME | uint64 length | its name | Tensor

All little-endian, the names in order; files.tensor says what a Tensor is.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fluidjax.base.enums import to_numpy_dtype
from fluidjax.base.errors import EnforceNotMet, explain
from fluidjax.base.scope import Scope
from fluidjax.eager.variables.varbase import VarBase
from fluidjax.execution.native import NativeExecutor
from fluidjax.files.atomic import write_file
from fluidjax.files.cursor import Cursor
from fluidjax.files.errors import bad_file
from fluidjax.files.tensor import decode_tensor, encode_tensor
from fluidjax.framework import Variable

_MEANINGLESS = 256
_COUNT, _NAME = b"TNUM", b"NAME"
_LONGEST = 1 << 16  # of names


def _create_loaded_parameter(vars: list[Variable], scope: Scope, executor: NativeExecutor) -> None:
    """Give variables of a scope that have no value yet zeros of their declared shapes and types."""
    for var in _variables(vars):
        tensor = scope.var(var.name).get_tensor()
        if not tensor._is_initialized():
            tensor.set(np.zeros(var.shape, to_numpy_dtype(var.dtype)), executor.place)


def _save_static_dict(path: str, vars: list[Variable], scope: Scope) -> None:
    """Write the values that variables have in a scope. Raises EnforceNotMet where one has none."""
    found = {}
    for var in _variables(vars):
        held = scope.find_var(var.name)
        if held is None or not held.get_tensor()._is_initialized():
            raise EnforceNotMet(
                explain(
                    f"Variable find error, when save model, can't not find vairable [{var.name}]",
                    "a variable that has a value in the scope",
                    "none",
                    "Please make sure you have run StartUpProgram",
                )
            )
        found[var.name] = np.asarray(held.get_tensor())
    _write(path, found)


def _load_static_dict(path: str, vars: list[Variable], scope: Scope, executor: NativeExecutor) -> None:
    """Read the values of variables into a scope. Raises EnforceNotMet where the file lacks one, or is none."""
    found = _read(path)
    for var in _variables(vars):
        if var.name not in found:
            raise EnforceNotMet(
                explain(
                    f"Paramete not found in Model file, Can not find [{var.name}] in model file [{path}]",
                    "the names of tensors in the file",
                    ", ".join(found) or "an empty file",
                    "load the variables that were saved",
                )
            )
        scope.var(var.name).get_tensor().set(found[var.name], executor.place)


def _save_dygraph_dict(path: str, vars: Mapping[str, VarBase]) -> None:
    """Write variables of eager mode under their own names; the keys do not matter, as in Fluid."""
    for key, var in vars.items():
        if not isinstance(var, VarBase):
            received = f"a {type(var).__name__} for {key!r}"
            raise EnforceNotMet(
                explain("Python object is not type of VarBase", "variables of eager mode", received, "pass such")
            )
    _write(path, {var.name: var.numpy() for var in vars.values()})


def _load_dygraph_dict(path: str) -> dict[str, VarBase]:
    """The tensors of a file by name, as variables of eager mode."""
    return {name: VarBase(array, name=name) for name, array in _read(path).items()}


def _variables(vars: Any) -> Iterable[Variable]:
    if not isinstance(vars, list) or not all(isinstance(var, Variable) for var in vars):
        received = f"{vars!r:.60} of type {type(vars).__name__}"
        raise EnforceNotMet(
            explain("Set parameter should be a list", "a list of Variables", received, "pass program.list_vars()")
        )
    return vars


def _write(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    chunks: list[bytes | memoryview] = [bytes(_MEANINGLESS), _COUNT, struct.pack("<Q", len(arrays))]
    for name in sorted(arrays):
        text = name.encode()
        chunks += [_NAME, struct.pack("<Q", len(text)), text, *encode_tensor(arrays[name])]
    write_file(path, chunks)


def _read(path: str) -> dict[str, np.ndarray]:
    if not os.path.isfile(path):
        raise EnforceNotMet(
            explain(f"File open error. Can not open model file [{path}]", "a file", "none there", "save one first")
        )
    with open(path, "rb") as file:
        cursor = Cursor(file, path)
        cursor.take(_MEANINGLESS, "the space in front")
        _mark(cursor, _COUNT)
        found = dict(_tensor(cursor) for _ in range(cursor.number("Q", "the number of tensors")))
        cursor.end()
    return found


def _tensor(cursor: Cursor) -> tuple[str, np.ndarray]:
    _mark(cursor, _NAME)
    length = cursor.number("Q", "the length of a name")
    if length > _LONGEST:
        raise bad_file(f"{cursor.label}: a name is too long", f"{_LONGEST} bytes at most", f"{length}")
    return cursor.take(length, "a name").decode(errors="replace"), decode_tensor(cursor)


def _mark(cursor: Cursor, mark: bytes) -> None:
    found = cursor.take(len(mark), "a mark")
    if found != mark:
        raise bad_file(f"{cursor.label}: no file of named tensors", repr(mark), repr(found))
