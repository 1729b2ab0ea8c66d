"""Saving and loading the contents of parameter servers, in the files that a single process would write."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

from fluidjax.base.enums import to_numpy_dtype
from fluidjax.base.errors import explain
from fluidjax.base.scope import global_scope
from fluidjax.files import atomic, variables
from fluidjax.files.cursor import Cursor
from fluidjax.files.errors import MismatchError, bad_file
from fluidjax.files.scope_values import UninitializedVariableError, put
from fluidjax.files.tensor import DenseValue, decode
from fluidjax.framework import Program, Variable

TABLES = "__lookup_table__"  # the folder, below that of a model, in which servers save their parts of a table


def holds(program: Program) -> list[str]:
    """The names of a trainer's parameters whose values only servers have: tables."""
    if not program._is_distributed:
        return []
    tables = program._parameters_on_pservers.get_distributed_vars_by_vtypes(["RemotePrefetch"], groupby=True)
    return sorted({*tables, program._distributed_lookup_table} - {None})


def check_here(program: Program, chosen: Sequence[Variable]) -> None:
    """Raise UninitializedVariableError if a trainer is to write what only servers have."""
    away = sorted({var.name for var in chosen} & set(holds(program)))
    if away:
        raise UninitializedVariableError(
            explain(
                f"{', '.join(away)} cannot be saved by a trainer alone",
                "variables whose values are in its scope",
                "tables that parameter servers hold",
                "call fluid.io.save_persistables or save_inference_model, which ask the servers",
            )
        )


def save(executor: Any, dirname: str, program: Program) -> None:
    """``save_persistables`` for a trainer's program.

    Each trainer writes its own variables; trainer 0 also those parameters and optimizer states held by the servers, and
    has them write their parts of a distributed table.
    """
    overview = program._parameters_on_pservers
    remote = overview.get_distributed_vars_by_vtypes(["Optimizer", "RemotePrefetch"], groupby=True)
    elsewhere = {*remote, program._distributed_lookup_table}
    local = [v for v in program.list_vars() if variables.is_persistable(v) and v.name not in elsewhere]
    variables.save(variables.chosen(program, local, None), dirname, None)
    if not program._is_chief:
        return
    gathering = Program()
    for name, parts in remote.items():
        _append_recv_save(gathering, os.path.join(dirname, name), parts)
    if program._distributed_lookup_table:
        attrs = {
            "epmap": list(program._endpoints),
            "dir": os.path.join(os.path.abspath(dirname), TABLES),
            "lookup_table": program._distributed_lookup_table,
        }
        gathering.global_block().append_op(type="checkpoint_notify", inputs={}, outputs={}, attrs=attrs)
    executor.run(gathering)


def _append_recv_save(program: Program, path: str, parts: Sequence[Any]) -> None:
    if parts[0].is_slice:
        parts = sorted(parts, key=lambda part: part.block_id)
    names = [part.slice.name for part in parts]
    program.global_block().append_op(
        type="recv_save",
        inputs={},
        outputs={},
        attrs={
            "trainer_id": 0,
            "shape": list(parts[0].origin.shape),
            "slice_shapes": [",".join(map(str, part.slice.shape)) for part in parts],
            "slice_varnames": [f"{name}.slice.{number}" for number, name in enumerate(names)],
            "remote_varnames": names,
            "endpoints": [part.endpoint for part in parts],
            "file_path": path,
        },
    )


def load(dirname: str, program: Program) -> None:
    """``load_persistables`` for a server's program: loads its parts of the files."""
    if not program._ps_endpoint:
        raise ValueError(
            explain(
                "load_persistables does not know which server this is",
                "a program that was transpiled for one",
                "a transpile() without current_endpoint",
                "pass current_endpoint to transpile()",
            )
        )
    parts = program._parameters_on_pservers.get_distributed_vars_by_ep(program._ps_endpoint)
    with atomic.reading(dirname):
        found = {part.slice.name if part.is_slice else part.origin.name: _read(part, dirname) for part in parts}
    put(global_scope(), found)


def _read(part: Any, dirname: str) -> DenseValue:
    """A part from the file of the whole; bytes after the whole are other servers' copies of it."""
    with variables.open_file(dirname, part.origin.name) as file:
        value = decode(Cursor(file, os.path.join(dirname, part.origin.name)))
    dtype = to_numpy_dtype(part.origin.dtype)
    if value.array.dtype != dtype:
        raise MismatchError(f"{part.origin.name!r} is {dtype} in the program and {value.array.dtype} in the file")
    if not part.is_slice:
        return value
    flat, shape = value.array.reshape(-1), tuple(part.slice.shape)
    end = part.offset + math.prod(shape)
    if end > flat.size:
        raise bad_file(
            f"{part.origin.name!r} is too short for {part.slice.name!r}",
            f"{end} elements",
            f"{flat.size}",
            "load what was saved for this network",
        )
    return DenseValue(flat[part.offset : end].reshape(shape).copy())
