"""Inference models: a pruned program between feed and fetch ops, and the parameters it reads."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from fluidjax import unique_name
from fluidjax.base.enums import VarType
from fluidjax.base.errors import explain
from fluidjax.base.mode import tracer_guard
from fluidjax.base.scope import Scope, global_scope
from fluidjax.files import atomic, remote, trust, variables
from fluidjax.files.compatible import stamp
from fluidjax.files.errors import bad_file
from fluidjax.files.scope_values import check_savable, chunks_of, put
from fluidjax.framework import Program, Variable, program_guard
from fluidjax.proto import framework_pb2 as pb
from lowering.errors import near
from lowering.program import PADDLE_2

MODEL = "__model__"


# ---- saving ----


def save(
    dirname: str,
    feeds: Sequence[str] | str,
    targets: Sequence[Variable] | Variable,
    program: Program,
    model_filename: str | None,
    params_filename: str | None,
    deploy: bool,
    program_only: bool,
    executor: Any = None,
) -> list[str]:
    """Save a model; see ``fluid.io.save_inference_model``. Returns the names of the fetched variables."""
    feed_names, target_vars = _feeds(feeds, deploy), _targets(targets)
    _warn_of_states(program)
    program, fetched = with_identity(program, target_vars)
    model_file = os.path.basename(model_filename) if model_filename is not None else MODEL
    if deploy:
        program = deployable(program, feed_names, fetched)
    else:
        model_file += ".main_program"
    message = pb.ProgramDesc()
    message.CopyFrom(program.proto)
    if message.version.version < PADDLE_2:  # what a later release wrote keeps its meaning only under that release
        stamp(message)
    files: dict[str, Any] = {model_file: [message.SerializePartialToString()]}
    if program_only:
        warnings.warn(
            "save_inference_model specified the param `program_only` to True, It will not save params of Program.",
            stacklevel=3,
        )
    dirname, away = os.path.normpath(dirname), remote.holds(program)
    if away and not program_only and params_filename is not None:
        raise ValueError(
            explain(
                f"save_inference_model: servers hold {', '.join(away)}",
                "files of their own for what servers hold: params_filename None",
                repr(params_filename),
                "leave params_filename out",
            )
        )
    with global_scope()._lock:  # what is written is of one step
        if not (program_only or away):
            files |= _parameter_files(program, params_filename, global_scope())
        atomic.write_files(dirname, files)
    if away and not program_only:
        remote.save(executor, dirname, program)
    return fetched


def _feeds(feeds: Any, deploy: bool) -> list[str]:
    names = [feeds] if isinstance(feeds, str) else list(feeds or ())
    if deploy and not all(isinstance(name, str) for name in names):
        raise ValueError(
            explain(
                "'feed_var_names' should be a list of str.",
                "names of the variables to be fed",
                repr([type(name).__name__ for name in names]),
                "pass [variable.name, ...]",
            )
        )
    return names


def _targets(targets: Any) -> list[Variable]:
    found = [targets] if isinstance(targets, Variable) else list(targets or ())
    if not found or not all(isinstance(var, Variable) for var in found):
        raise ValueError(
            explain(
                "'target_vars' should be a list of Variable.",
                "the variables that the model is to compute",
                repr(targets) if isinstance(targets, str) else repr([type(var).__name__ for var in found]),
                "pass the Variables that layers returned, not their names",
            )
        )
    return found


def _warn_of_states(program: Program) -> None:
    if any(op.type == "auc" for op in program.global_block().ops):
        # Fluid 1.8.5's words, which scripts compare. Else the loaded model goes on counting.
        warnings.warn(
            "please ensure that you have set the auc states to zeros before saving inference model", stacklevel=5
        )


def with_identity(program: Program, targets: Sequence[Variable]) -> tuple[Program, list[str]]:
    """A copy in which each target passes through a ``scale`` by 1, and the names of the results.

    Paddle writes models in this way (and adds the ops to the user's own program, which remains unchanged here).
    """
    copy = program.clone()
    names = []
    with program_guard(copy):
        block = copy.global_block()
        for index, target in enumerate(targets):
            source = block.var(target.name)
            name = unique_name.generate(f"save_infer_model/scale_{index}.tmp")
            out = block.create_var(name=name, dtype=source.dtype, lod_level=source.lod_level, persistable=False)
            attrs = {"scale": 1.0, "bias": 0.0, "bias_after_scale": True}
            block.append_op(type="scale", inputs={"X": source}, outputs={"Out": out}, attrs=attrs)
            names.append(name)
    return copy, names


def deployable(program: Program, feed_names: Sequence[str], fetch_names: Sequence[str]) -> Program:
    """The part of a program that computes the fetches from the feeds, with feed and fetch ops around it."""
    block = without_feeds_and_fetches(program).global_block()
    for name in feed_names:
        if not block.has_var(name):
            close = near(name, block.vars)
            raise ValueError(
                explain(
                    f"var {name} not in this block: the model is to be fed a variable that the program does not have",
                    f"names of variables, such as {', '.join(n for n, var in block.vars.items() if var.is_data)}",
                    f"feeded_var_names={list(feed_names)}",
                    f"write {close[0]!r}, if that was meant" if close else "check the name",
                )
            )
    program = program._prune_with_input(list(feed_names), list(fetch_names))
    return with_feeds_and_fetches(program._inference_optimize(prune_read_op=True), feed_names, fetch_names)


def without_feeds_and_fetches(program: Program) -> Program:
    """The same program, with its feed and fetch ops removed."""
    block = program.global_block()
    for index in reversed(range(len(block.ops))):
        if block.ops[index].type in ("feed", "fetch"):
            block._remove_op(index)
    return program


def with_feeds_and_fetches(program: Program, feed_names: Sequence[str], fetch_names: Sequence[str]) -> Program:
    """The same program, with feed and fetch ops put around it; written, not run, in eager mode, too."""
    with tracer_guard(None):
        prepend_feed_ops(program, feed_names)
        append_fetch_ops(program, fetch_names)
    return program


def prepend_feed_ops(program: Program, feed_names: Sequence[str], holder: str = "feed") -> None:
    """Insert a feed op per feed before all other ops; that of the last feed comes first."""
    if not feed_names:
        return
    block = program.global_block()
    feed = block.create_var(name=holder, type=VarType.FEED_MINIBATCH, persistable=True)
    for index, name in enumerate(feed_names):
        if not block.has_var(name):
            raise ValueError(
                explain(
                    f"var {name} not in this block: the model is to be fed it, and its outputs do not depend on it",
                    "names of variables that the program reads",
                    f"feeds {list(feed_names)}",
                    "leave it out of feeded_var_names, or choose other target_vars",
                )
            )
        block._prepend_op(type="feed", inputs={"X": feed}, outputs={"Out": block.var(name)}, attrs={"col": index})


def append_fetch_ops(program: Program, fetch_names: Sequence[str], holder: str = "fetch") -> None:
    """Append a fetch op for each fetch."""
    block = program.global_block()
    fetch = block.create_var(name=holder, type=VarType.FETCH_LIST, persistable=True)
    for index, name in enumerate(fetch_names):
        block.append_op(type="fetch", inputs={"X": name}, outputs={"Out": fetch}, attrs={"col": index})


def write_two_files(dirname: str, program: Program, scope: Scope) -> None:
    """Write a loaded model as the files ``model`` and ``params`` in a directory."""
    with scope._lock:
        files = {"model": [program.desc.serialize_to_string()], **_parameter_files(program, "params", scope)}
        atomic.write_files(os.path.normpath(dirname), files)


def _parameter_files(program: Program, params_filename: str | None, scope: Scope) -> dict[str, Any]:
    needed = variables.chosen(program, None, variables.is_persistable)
    check_savable(scope, needed)
    names = [var.name for var in variables.by_name(needed)]
    if not names:
        warnings.warn(
            "no variable in your model, please ensure there are any variables in your model to save", stacklevel=4
        )
        return {}
    if params_filename is None:
        return {name: chunks_of(scope, name) for name in names}

    def combined() -> Iterator[bytes | memoryview]:
        for name in names:
            yield from chunks_of(scope, name)

    return {os.path.basename(params_filename): combined()}


# ---- loading ----


def load(
    dirname: str | None,
    model_filename: str | bytes | None,
    params_filename: str | bytes | None,
    scope: Scope | None = None,
) -> tuple[Program, list[str], list[Variable]]:
    """Load a model and its parameters into a scope (default: global); see ``fluid.io.load_inference_model``."""
    with atomic.reading(dirname):
        data, label = _model_bytes(dirname, model_filename)
        program = parse(data, label)
        if isinstance(params_filename, str) and dirname is not None:
            params_filename = os.path.basename(params_filename)
        needed = variables.chosen(program, None, variables.is_persistable)
        values = variables.read(needed, dirname, params_filename) if needed else {}
    feeds, fetches = _ends(program, label)
    put(global_scope() if scope is None else scope, values)
    trust.mark_loaded(program, label)
    return program, feeds, fetches


def _model_bytes(dirname: str | None, model_filename: str | bytes | None) -> tuple[bytes, str]:
    if dirname is None:
        if not isinstance(model_filename, bytes):
            raise ValueError(
                explain(
                    "load_inference_model needs a model",
                    "dirname, or the model's and the parameters' bytes in place of file names",
                    f"dirname None, model_filename {type(model_filename).__name__}",
                    "pass the folder that save_inference_model wrote",
                )
            )
        return model_filename, "the model given as bytes"
    dirname = os.path.normpath(dirname)
    if not os.path.isdir(dirname):
        raise ValueError(
            explain(
                f"There is no directory named {dirname!r}",
                "the folder that save_inference_model wrote",
                "a file" if os.path.exists(dirname) else "nothing of that name",
                "check the path",
            )
        )
    name = MODEL if model_filename is None else os.path.basename(os.fsdecode(model_filename))
    with variables.open_file(dirname, name) as file:
        return file.read(), os.path.join(dirname, name)


def parse(data: bytes, label: str) -> Program:
    """The program in the bytes of a file, of any version; FileFormatError if there is none, or it is damaged."""
    try:
        return Program.parse_from_string(data)
    except ValueError as error:
        raise bad_file(
            f"{label}: this is not a program that can be read", "a serialized ProgramDesc", str(error)
        ) from error


def _ends(program: Program, label: str) -> tuple[list[str], list[Variable]]:
    """The names of feeds and the fetched variables, in column order."""
    block = program.global_block()
    feeds = [(op.attr("col"), _only(op.output("Out"), op, label)) for op in block.ops if op.type == "feed"]
    fetches = [(op.attr("col"), _only(op.input("X"), op, label)) for op in block.ops if op.type == "fetch"]
    for _, name in feeds + fetches:
        if not block.has_var(name):
            raise bad_file(f"{label}: a feed or fetch op names no variable", "a variable of block 0", repr(name))
    return [name for _, name in sorted(feeds)], [block.var(name) for _, name in sorted(fetches)]


def _only(names: list[str], op: Any, label: str) -> str:
    if len(names) != 1:
        raise bad_file(f"{label}: a {op.type} op is damaged", "one variable", f"{len(names)}")
    return names[0]
