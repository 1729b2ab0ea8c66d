"""Conversion and loading of programs whose embedding table was distributed over parameter servers."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from fluidjax.base.enums import VarType
from fluidjax.base.errors import explain
from fluidjax.base.scope import global_scope
from fluidjax.files import atomic, inference, paths, variables
from fluidjax.files.cursor import Cursor
from fluidjax.files.errors import bad_file
from fluidjax.files.scope_values import check_array_fits, check_fits, put
from fluidjax.files.tensor import DenseValue, RowsValue, Value, decode, decode_rows, encode
from fluidjax.framework import Block, Program, Variable

__all__ = [
    "load_persistables_for_increment",
    "load_persistables_for_inference",
    "convert_dist_to_sparse_program",
]

_logger = logging.getLogger(__name__)

_TABLE_FOLDER = "__lookup_table__"
_ORIGIN = ".origin"
# Parts of names of what a distributed run keeps beside the model.
_NOT_THE_MODEL = ("@GRAD", ".trainer_", ".block", "tmp_")


def convert_dist_to_sparse_program(program: Program) -> Program | None:
    """Make a trainer program with a distributed lookup table read the table from its own scope.

    The ops split_ids, prefetch and merge_ids, which query the parameter servers, are replaced by a ``lookup_table`` for
    each of their inputs. The table's variable becomes a SelectedRows; the former variable gets the suffix ``.origin``.

    Args:
        program: modified in place; its attribute ``_distributed_lookup_table`` names the table.

    Returns:
        ``program``, or None if it has no distributed lookup table.

    Raises:
        ValueError: the three ops do not follow one another.
    """
    table = program._distributed_lookup_table
    if not table:
        _logger.warning("the program has no distributed lookup table; it is left as it is")
        return None
    block = program.global_block()
    first = _prefetch(block, table)
    ids, outs = block.ops[first].input("Ids"), block.ops[first + 2].output("Out")
    declared = block._rename_var(table, table + _ORIGIN)
    settings = {"shape": declared.shape, "dtype": declared.dtype}
    block.create_var(name=table, type=VarType.SELECTED_ROWS, persistable=True, **settings)
    for _ in range(3):
        block._remove_op(first)
    for i, (source, out) in enumerate(zip(ids, outs, strict=True)):
        block._insert_op(
            first + i,
            type="lookup_table",
            inputs={"Ids": [source], "W": [table]},
            outputs={"Out": [out]},
            attrs={"is_sparse": True},
        )
    return program


def _prefetch(block: Block, table: str) -> int:
    """The index of split_ids, followed by prefetch and merge_ids."""
    wanted = ["split_ids", "prefetch", "merge_ids"]
    types = [op.type for op in block.ops]
    found = [i for i in range(len(types)) if types[i : i + 3] == wanted]
    if not found:
        raise ValueError(
            explain(
                f"the program does not fetch its distributed lookup table {table!r}",
                f"the ops {wanted}, one after another",
                f"ops {types[:12]}",
                "pass the trainer program that the distribute transpiler made",
            )
        )
    return found[0]


def load_persistables_for_increment(
    dirname: str, executor: Any, program: Program, lookup_table_var: str, lookup_table_var_path: str
) -> None:
    """Load the state of one parameter server to resume training: its slices of variables, and its shard of the table.

    Args:
        dirname: directory with a file for each whole variable.
        executor: accepted for compatibility with Fluid.
        program: the parameter server's program, which knows its slices (``_parameters_on_pservers``).
        lookup_table_var: name of the table's variable in ``program``.
        lookup_table_var_path: the file with this server's shard of the table.

    Raises:
        ValueError: an invalid path or program; MismatchError or FileFormatError for a file that
            does not match. The scope is then left unchanged.
    """
    _check_folder(dirname)
    if not os.path.exists(lookup_table_var_path):
        raise ValueError(
            explain("the lookup table cannot be loaded", "a file", repr(lookup_table_var_path), "pass the path of one")
        )
    _check_program(program)
    if program._parameters_on_pservers is None:
        raise ValueError(
            explain(
                "the program is not one of a parameter server",
                "a program that knows which slices it holds (_parameters_on_pservers)",
                "None",
                "pass the program from DistributeTranspiler.get_pserver_program",
            )
        )
    held = program._parameters_on_pservers.get_distributed_vars_by_ep(program._ps_endpoint)
    values = {part.slice.name if part.is_slice else part.origin.name: _slice(dirname, part) for part in held}
    table = program.global_block().var(lookup_table_var)
    values[table.name] = _read(lookup_table_var_path, table.type == VarType.SELECTED_ROWS)
    check_fits(table, values[table.name], lookup_table_var_path)
    put(global_scope(), values)


def _slice(dirname: str, part: Any) -> Value:
    """The rows of a variable held by a parameter server; all if it is not sliced."""
    whole = variables.read([part.origin], dirname, None)[part.origin.name]
    if not part.is_slice:
        return whole
    first = part.offset // math.prod(part.slice.shape[1:])
    cut = DenseValue(whole.array[first : first + part.slice.shape[0]])
    check_array_fits(part.slice, cut.array.shape, cut.array.dtype, os.path.join(dirname, part.origin.name))
    return cut


def load_persistables_for_inference(
    dirname: str, executor: Any, program: Program | None, lookup_table_var_name: str
) -> Program:
    """Load a model whose lookup table was saved in shards, one file per parameter server.

    The shards ``<table>_0``, ``<table>_1`` ... in the directory ``__lookup_table__`` are joined to one SelectedRows, in
    the scope and in the file ``<table>`` beside them.

    Args:
        dirname: directory of the model.
        executor: accepted for compatibility with Fluid.
        program: the model's program; if None, read from ``__model__`` in the directory.
        lookup_table_var_name: name of the table's variable.

    Returns:
        The program.

    Raises:
        ValueError: ``dirname`` is not a directory or ``program`` not a program; FileNotFoundError without shards of the
            table; MismatchError or FileFormatError for a file that does not match. The scope is then left unchanged.
    """
    _check_folder(dirname)
    if program is None:
        with variables.open_file(dirname, "__model__") as file:
            program = inference.parse(file.read(), os.path.join(dirname, "__model__"))
    _check_program(program)
    folder = os.path.join(dirname, _TABLE_FOLDER)
    table = _joined(folder, lookup_table_var_name)
    apart = {lookup_table_var_name, lookup_table_var_name + _ORIGIN}
    wanted = [var for var in program.list_vars() if _in_checkpoint(var) and var.name not in apart]
    values = variables.read(wanted, dirname, None)
    declared = program.global_block().var(lookup_table_var_name)
    check_array_fits(declared, (declared.shape[0], *table.array.shape[1:]), table.array.dtype, folder)
    put(global_scope(), {**values, lookup_table_var_name: table})
    atomic.write_file(paths.inside(folder, lookup_table_var_name), encode(table))
    return program


def _in_checkpoint(var: Variable) -> bool:
    return variables.is_persistable(var) and not any(part in var.name for part in _NOT_THE_MODEL)


def _joined(folder: str, name: str) -> RowsValue:
    """Join the shards of a table; each row must occur in only one."""
    pattern = re.compile(re.escape(name) + r"_(\d+)")
    found = os.listdir(folder) if os.path.isdir(folder) else []
    numbers = sorted(int(match[1]) for match in map(pattern.fullmatch, found) if match)
    if not numbers:
        raise FileNotFoundError(
            explain(
                f"the lookup table {name!r} cannot be loaded",
                f"files {name}_0, {name}_1 ... in {folder!r}",
                f"{sorted(found)[:8]}",
                "pass the folder that a distributed run saved, and the name of its table",
            )
        )
    parts = [_read(paths.inside(folder, f"{name}_{i}"), True) for i in numbers]
    return _join([part for part in parts if isinstance(part, RowsValue)], folder)


def _join(parts: Sequence[RowsValue], folder: str) -> RowsValue:
    rows = [row for part in parts for row in part.rows]
    shapes = {(part.height, *part.array.shape[1:]) for part in parts}
    if len(shapes) > 1 or len(set(rows)) < len(rows):
        received = f"shapes {sorted(shapes)}" if len(shapes) > 1 else f"{len(rows) - len(set(rows))} rows twice"
        raise bad_file(f"{folder}: the parts of the table do not fit together", "each row of one matrix once", received)
    return RowsValue(np.concatenate([part.array for part in parts]), rows, parts[0].height)


def _read(path: str, sparse: bool) -> Value:
    with open(path, "rb") as file:
        cursor = Cursor(file, path)
        value: Value = decode_rows(cursor) if sparse else decode(cursor)
        cursor.end()
    return value


def _check_folder(dirname: str) -> None:
    if not os.path.isdir(dirname):
        raise ValueError(explain("the model cannot be loaded", "a folder", repr(dirname), "pass the path of one"))


def _check_program(program: Any) -> None:
    if not isinstance(program, Program):
        raise ValueError(
            explain("program is no program", "a fluid.Program", f"a {type(program).__name__}", "pass the program")
        )


def get_inference_model(
    main_program: Program, feeded_var_names: Sequence[str], target_vars: Sequence[Variable]
) -> Program:
    """A program for inference with a distributed lookup table: what the targets depend on, between feed and fetch ops.

    Args:
        main_program: remains unchanged.
        feeded_var_names: names of the variables to be fed.
        target_vars: the variables to be computed.

    Raises:
        ValueError: a variable to be fed is not read by what the targets depend on.
    """
    program = inference.without_feeds_and_fetches(main_program.clone())
    pruned = program._prune_with_input([], list(target_vars))._inference_optimize(prune_read_op=True)
    return inference.with_feeds_and_fetches(pruned, feeded_var_names, [var.name for var in target_vars])
