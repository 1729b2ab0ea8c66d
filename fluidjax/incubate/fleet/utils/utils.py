"""Saving, loading and checking programs of a fleet."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from fluidjax import debugger, io
from fluidjax.base.enums import VarType
from fluidjax.base.errors import explain
from fluidjax.framework import Block, Program, Variable
from fluidjax.framework_pb2 import ProgramDesc
from fluidjax.incubate.fleet.utils.saved_vars import try_saved

__all__ = [
    "load_program", "save_program", "program_type_trans", "check_saved_vars_try_dump", "parse_program",
    "check_pruned_program_vars", "graphviz",
]  # fmt: skip

_logger = logging.getLogger(__name__)
_HANDED = (VarType.FEED_MINIBATCH, VarType.FETCH_LIST)


def load_program(model_filename: str, is_text: bool = False) -> Program:
    """Load a program from a file: a serialised ProgramDesc, or with ``is_text`` its text format.

    Raises ValueError if the text is not a ProgramDesc.
    """
    data = Path(model_filename).read_bytes()
    return Program.parse_from_string(_parsed(data.decode(), model_filename) if is_text else data)


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
    held = [var for var in _persistable(pruned_prog) if var.type not in _HANDED]
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
    if any(op.type == "lookup_table" for op in program.global_block().ops):
        _logger.warning("there is a lookup_table in the program; look at how it was pruned")
    name = program_type_trans(dump_dir, dump_prog_fn, True) if is_text_dump_program else dump_prog_fn
    return try_saved(dump_dir, name, feed_config, fetch_config, batch_size, save_filename)


def graphviz(block: Block, output_dir: str = "", filename: str = "debug") -> None:
    """Draw a block into ``output_dir``: FILENAME.dot, and FILENAME.pdf where there is a ``dot``."""
    path = os.path.join(output_dir, filename + ".dot")
    debugger.draw_block_graphviz(block, path=path)
    debugger.as_pdf(path)


def parse_program(program: Program, output_dir: str) -> None:
    """List a program in ``output_dir``: vars_persistable.log, vars_all.log and ops.log, one dict per line."""
    _list(output_dir, "vars_persistable.log", "persistable vars", map(_persistable_facts, _persistable(program)))
    _list(output_dir, "vars_all.log", "all vars", map(_variable_facts, program.list_vars()))
    _list(output_dir, "ops.log", "ops", map(_op_facts, program.global_block().ops))


def _list(folder: str, name: str, title: str, lines: Iterable[dict[str, Any]]) -> None:
    Path(folder, name).write_text("".join(f"{line}\n" for line in [f"{title}:", *lines]))


def _variable_facts(var: Variable) -> dict[str, Any]:
    if var.type in _HANDED:
        return {"name": var.name, "type": str(var.type)}
    return {"name": var.name, "shape": str(var.shape), "lod_level": int(var.lod_level), "dtype": str(var.dtype)}


def _persistable_facts(var: Variable) -> dict[str, Any]:
    if var.type in _HANDED:
        return _variable_facts(var)
    return {**_variable_facts(var), "type": str(var.type)}


def _op_facts(op: Any) -> dict[str, Any]:
    return {
        "type": op.type,
        "input_arg_names": str(op.input_arg_names),
        "output_arg_names": str(op.output_arg_names),
    }
