"""Saving, loading and checking programs of a fleet."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from fluidjax import debugger, io
from fluidjax.base.enums import VarType
from fluidjax.base.errors import explain
from fluidjax.base.places import CPUPlace
from fluidjax.executor import Executor
from fluidjax.framework import Block, Program, Variable, program_guard
from fluidjax.incubate.fleet.utils.saved_vars import feed_gen as feed_gen
from fluidjax.incubate.fleet.utils.saved_vars import reader as reader
from fluidjax.incubate.fleet.utils.saved_vars import try_saved
from fluidjax.layers import data
from fluidjax.proto.framework_pb2 import ProgramDesc

__all__ = [
    "load_program", "save_program", "program_type_trans", "check_saved_vars_try_dump", "parse_program",
    "check_pruned_program_vars", "graphviz",
]  # fmt: skip

_logger = logging.getLogger(__name__)

persistable_vars_out_fn, all_vars_out_fn, ops_out_fn = "vars_persistable.log", "vars_all.log", "ops.log"
feed_fetch_type_list = [VarType.FEED_MINIBATCH, VarType.FETCH_LIST]
not_expected_op_types = ["lookup_table"]


def load_program(model_filename: str, is_text: bool = False) -> Program:
    """Load a program from a file: a serialised ProgramDesc, or with ``is_text`` its text format.

    Raises ValueError if the text is not a ProgramDesc.
    """
    return load_program_text(model_filename) if is_text else load_program_binary(model_filename)


def load_program_binary(model_filename: str) -> Program:
    """Load a program from a serialised ProgramDesc."""
    return Program.parse_from_string(Path(model_filename).read_bytes())


def load_program_text(model_filename: str) -> Program:
    """Load a program from the text of a ProgramDesc. Raises ValueError if it is none."""
    return Program.parse_from_string(_parsed(Path(model_filename).read_text(), model_filename))


def _parsed(text: str, file: str) -> bytes:
    try:
        return text_format.Parse(text, ProgramDesc()).SerializeToString()
    except text_format.ParseError as error:
        raise ValueError(
            explain(
                f"load_program: {file} does not hold a program as text",
                "what save_program(..., is_text=True) writes",
                str(error),
                "write it again, or read it with is_text=False",
            )
        ) from error


def save_program(program: Program, model_filename: str = "__model__", is_text: bool = False) -> None:
    """Save a program to a file that ``load_program`` can read."""
    data = program.desc.serialize_to_string()
    if is_text:
        data = text_format.MessageToString(ProgramDesc.FromString(data)).encode()
    Path(model_filename).write_bytes(data)


def program_type_trans(prog_dir: str, prog_fn: str, is_text: bool) -> str:
    """Save a program file in the other form; returns its name, with ``.bin`` for a text file, else ``.pbtxt``."""
    written = prog_fn + (".bin" if is_text else ".pbtxt")
    save_program(load_program(os.path.join(prog_dir, prog_fn), is_text), os.path.join(prog_dir, written), not is_text)
    return written


def check_pruned_program_vars(train_prog: Program, pruned_prog: Program) -> bool:
    """Whether the persistable variables of a pruned program have the same shapes and dtypes as in training.

    Variables missing from the training program are logged but accepted, as in Fluid.
    """
    known = train_prog.global_block().vars
    held = [var for var in _persistable(pruned_prog) if var.type not in feed_fetch_type_list]
    for name in (var.name for var in held if var.name not in known):
        _logger.error("there is no variable %r in the program that was trained; look at how it was pruned", name)
    differ = [var for var in held if var.name in known and _facts(var) != _facts(known[var.name])]
    for var in differ:
        _logger.error("variable %s: %s after pruning, %s before", var.name, _facts(var), _facts(known[var.name]))
    return not differ


def _facts(var: Variable) -> tuple[Any, Any]:
    return tuple(var.shape), var.dtype


def _persistable(program: Program) -> list[Variable]:
    return [var for var in program.list_vars() if io.is_persistable(var)]


def check_saved_vars_try_dump(
    dump_dir: str,
    dump_prog_fn: str,
    is_text_dump_program: bool,
    feed_config: Any,
    fetch_config: Any,
    batch_size: int = 1,
    save_filename: str | None = None,
) -> list[Any]:
    """Load a saved model, compare its parameters with its program, and run it once.

    Args:
        dump_dir: directory of the model.
        dump_prog_fn: file name of its program.
        is_text_dump_program: whether that is text; its other form is then saved as well.
        feed_config: with the attributes ``feeded_vars_names``, ``feeded_vars_dims`` (of one example),
            ``feeded_vars_types`` and ``feeded_vars_filelist``: a file of numbers for each variable, with lines of whole
            batches; without files, random numbers are fed.
        fetch_config: with the attribute ``fetch_vars_names``; None for the outputs the program was saved with.
        batch_size: number of examples per batch.
        save_filename: file of combined parameters; None if each has its own.

    Returns:
        The fetched values: arrays, or tensors with LoD if one of them has sequences.

    Raises:
        MismatchError: the shape of a parameter file differs from the program's declaration.
        RuntimeError: the shape of a feed does.
    """
    program = load_program(os.path.join(dump_dir, dump_prog_fn), is_text_dump_program)
    check_not_expected_ops(program)
    return try_load_model_vars(
        dump_dir,
        dump_prog_fn,
        is_text_dump_program,
        batch_size,
        feed_config,
        fetch_config,
        save_filename,
        _persistable(program),
    )


def check_not_expected_ops(prog: Program) -> None:
    """Log a warning for each kind of op that a pruned program should not have: ``not_expected_op_types``."""
    for kind in sorted({op.type for op in prog.global_block().ops} & set(not_expected_op_types)):
        _logger.warning("there is a %s in the program; look at how it was pruned", kind)


def try_load_model_vars(
    dump_dir: str,
    dump_prog_fn: str,
    is_text_dump_program: bool,
    batch_size: int,
    feed_config: Any,
    fetch_config: Any,
    save_filename: str | None,
    saved_params: Iterable[Variable],
) -> list[Any]:
    """Load a saved model, compare the shapes of its parameters with those of some variables, and run it once.

    For arguments, results and errors see ``check_saved_vars_try_dump``; ``saved_params`` are the variables.
    """
    name = program_type_trans(dump_dir, dump_prog_fn, True) if is_text_dump_program else dump_prog_fn
    params = [var for var in saved_params if var.type not in feed_fetch_type_list]
    return try_saved(dump_dir, name, feed_config, fetch_config, batch_size, save_filename, params)


def append_save_op(block: Block, var: Variable, path: str) -> None:
    """Let a block save a variable to a file."""
    block.append_op(type="save", inputs={"X": [var]}, outputs={}, attrs={"file_path": path})


def append_load_op(block: Block, var: Variable, path: str) -> None:
    """Let a block load a variable from a file."""
    block.append_op(type="load", inputs={}, outputs={"Out": [var]}, attrs={"file_path": path})


def save_var(np_array: Any, var_name: str, shape_list: Sequence[int], dtype: Any, save_path: str) -> None:
    """Save an array to a file, in the format of variables; the shape is that of one example."""
    program = Program()
    with program_guard(program):
        var = data(var_name, shape=shape_list, dtype=dtype)
        append_save_op(program.global_block(), var, save_path)
        Executor(CPUPlace()).run(feed={var_name: np_array}, fetch_list=[])


def load_var(var_name: str, shape_list: Sequence[int], dtype: Any, save_path: str) -> list[Any]:
    """[the array that ``save_var`` saved to a file]."""
    program = Program()
    with program_guard(program):
        var = data(var_name, shape=shape_list, dtype=dtype)
        append_load_op(program.global_block(), var, save_path)
        return Executor(CPUPlace()).run(feed={}, fetch_list=[var])


def graphviz(block: Block, output_dir: str = "", filename: str = "debug") -> None:
    """Draw a block into ``output_dir``: FILENAME.dot, and FILENAME.pdf where there is a ``dot``."""
    path = os.path.join(output_dir, filename + ".dot")
    debugger.draw_block_graphviz(block, path=path)
    debugger.as_pdf(path)


def parse_program(program: Program, output_dir: str) -> None:
    """List a program in ``output_dir``: vars_persistable.log, vars_all.log and ops.log, one dict per line."""
    _list(output_dir, persistable_vars_out_fn, "persistable vars", map(_persistable_facts, _persistable(program)))
    _list(output_dir, all_vars_out_fn, "all vars", map(_variable_facts, program.list_vars()))
    _list(output_dir, ops_out_fn, "ops", map(_op_facts, program.global_block().ops))


def _list(folder: str, name: str, title: str, lines: Iterable[dict[str, Any]]) -> None:
    Path(folder, name).write_text("".join(f"{line}\n" for line in [f"{title}:", *lines]))


def _variable_facts(var: Variable) -> dict[str, Any]:
    if var.type in feed_fetch_type_list:
        return {"name": var.name, "type": str(var.type)}
    return {"name": var.name, "shape": str(var.shape), "lod_level": int(var.lod_level), "dtype": str(var.dtype)}


def _persistable_facts(var: Variable) -> dict[str, Any]:
    if var.type in feed_fetch_type_list:
        return _variable_facts(var)
    return {**_variable_facts(var), "type": str(var.type)}


def _op_facts(op: Any) -> dict[str, Any]:
    return {
        "type": op.type,
        "input_arg_names": str(op.input_arg_names),
        "output_arg_names": str(op.output_arg_names),
    }
