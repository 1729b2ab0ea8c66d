"""save_vars and load_vars: a file for each variable, or one for all in the order of their names."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from fluidjax.base.enums import VarType
from fluidjax.base.errors import explain
from fluidjax.base.scope import Scope, global_scope
from fluidjax.files import atomic
from fluidjax.files.cursor import Cursor
from fluidjax.files.errors import MissingFileError, bad_file
from fluidjax.files.scope_values import check_fits, check_savable, chunks_of, put
from fluidjax.files.tensor import Value, decode, decode_all, decode_rows
from fluidjax.framework import Parameter, Program, Variable, default_main_program

_NOT_FILES = (VarType.FEED_MINIBATCH, VarType.FETCH_LIST, VarType.READER, VarType.RAW)


def is_parameter(var: Any) -> bool:
    """Whether the variable is a Parameter."""
    return isinstance(var, Parameter)


def is_persistable(var: Variable) -> bool:
    """Whether the variable outlives a run and has a value that a file can hold."""
    return var.type not in _NOT_FILES and var.persistable


def is_belong_to_optimizer(var: Variable) -> bool:
    """Whether the variable is persistable and neither a parameter nor fed: learning rates, moments and the like."""
    return not (isinstance(var, Parameter) or var.proto.need_check_feed) and is_persistable(var)


def program_of(program: Any) -> Program:
    """The Program that is meant: the default one for None, the one inside a CompiledProgram.

    Raises TypeError for what holds none, such as a CompiledProgram that was made of a graph.
    """
    program = default_main_program() if program is None else program
    program = getattr(program, "_program", program) if getattr(program, "_graph", None) is None else program._graph
    if not isinstance(program, Program):
        raise TypeError(
            explain(
                "main_program is no program",
                "a fluid.Program, a CompiledProgram or None",
                f"a {type(program).__name__}",
                "pass the program whose variables are meant",
            )
        )
    return program


def chosen(
    program: Program, variables: Iterable[Any] | None, predicate: Callable[[Any], bool] | None
) -> list[Variable]:
    """The variables given, or those of the program that the predicate picks; those without a value left out."""
    if variables is None:
        found = [var for var in program.list_vars() if predicate is None or predicate(var)]
    else:
        found = [program.global_block().var(var) if isinstance(var, str) else var for var in variables]
    unique = {var.name: var for var in found if var.type not in _NOT_FILES}
    return list(unique.values())


def by_name(variables: Sequence[Variable]) -> list[Variable]:
    """In the order of a combined file."""
    return sorted(variables, key=lambda var: var.name)


def save(variables: Sequence[Variable], dirname: str | None, filename: str | None) -> bytes | None:
    """Write the variables' values in the global scope; with neither name, return what the one file would hold."""
    with global_scope()._lock:  # what is written is of one step
        return _save(global_scope(), variables, dirname, filename)


def _save(scope: Scope, variables: Sequence[Variable], dirname: str | None, filename: str | None) -> bytes | None:
    check_savable(scope, variables)
    if not variables:
        warnings.warn(
            "no variable in your model, please ensure there are any variables in your model to save", stacklevel=4
        )
        return None
    names = [var.name for var in by_name(variables)]

    def combined() -> Iterator[bytes | memoryview]:
        for name in names:
            yield from chunks_of(scope, name)

    if dirname is None and filename is None:
        return b"".join(combined())
    if dirname is None:
        raise ValueError(
            explain("save_vars needs a folder", "dirname, a path", "None", "pass dirname, or no filename either")
        )
    files = {name: chunks_of(scope, name) for name in names} if filename is None else {filename: combined()}
    atomic.write_files(os.path.normpath(dirname), files)
    return None


def load(variables: Sequence[Variable], dirname: str | None, filename: str | bytes | None) -> None:
    """Read the variables' values and put them into the global scope: all of them, or none where one is wrong."""
    put(global_scope(), read(variables, dirname, filename))


def read(variables: Sequence[Variable], dirname: str | None, filename: str | bytes | None) -> dict[str, Value]:
    """The variables' values in files, held against what the variables declare."""
    if dirname is None and filename is None:
        raise ValueError(
            explain(
                "load_vars needs a place to load from",
                "dirname, or the content of a combined file as filename",
                "The directory path and params cannot be None at the same time.",
                "pass dirname",
            )
        )
    if filename is not None:
        return _read_combined(by_name(variables), dirname, filename)
    dirname = os.path.normpath(str(dirname))
    with atomic.reading(dirname):
        return {var.name: _read_one(var, dirname) for var in variables}


def _read_combined(variables: list[Variable], dirname: str | None, filename: str | bytes) -> dict[str, Value]:
    if dirname is None:
        if not isinstance(filename, bytes):
            raise ValueError(explain("load_vars needs a folder", "dirname, a path", "None", "pass dirname"))
        return _checked(variables, Cursor(filename, "the parameters given as bytes"))
    if isinstance(filename, bytes):
        filename = os.fsdecode(filename)
    with open_file(os.path.normpath(dirname), filename) as file:
        return _checked(variables, Cursor(file, os.path.join(dirname, filename)))


def _checked(variables: list[Variable], cursor: Cursor) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for var, value in zip(variables, decode_all(cursor, len(variables)), strict=True):
        check_fits(var, value, cursor.label)
        values[var.name] = value
    return values


def _read_one(var: Variable, dirname: str) -> Value:
    with open_file(dirname, var.name) as file:
        cursor = Cursor(file, os.path.join(dirname, var.name))
        value: Value = decode_rows(cursor) if var.type == VarType.SELECTED_ROWS else decode(cursor)
        cursor.end()
    check_fits(var, value, cursor.label)
    return value


def stored_shape(dirname: str, name: str) -> tuple[int, ...]:
    """The shape of the tensor in a file of a saved model."""
    with open_file(dirname, name) as file:
        return decode(Cursor(file, os.path.join(dirname, name))).array.shape


def open_file(dirname: str, name: str) -> BinaryIO:
    """Open a file of a saved model; FileNotFoundError says what is there instead."""
    try:
        return atomic.open_newest(dirname, name)
    except FileNotFoundError as error:
        there = sorted(n for n in os.listdir(dirname)) if os.path.isdir(dirname) else None
        received = "no such folder" if there is None else f"a folder with {', '.join(there[:12]) or 'nothing in it'}"
        raise MissingFileError(
            explain(
                f"cannot open {os.path.join(dirname, name)!r}",
                f"a file {name!r} in {dirname!r}",
                received,
                "check the path, and whether one file for all variables was saved (then pass its name as filename)",
            )
        ) from error
    except IsADirectoryError as error:
        raise bad_file(
            f"{os.path.join(dirname, name)!r} is a folder", "a file", "a folder", "check the path"
        ) from error
