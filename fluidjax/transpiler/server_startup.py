"""A server's startup program: the initialisers of its variables, in the shapes of its blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fluidjax.base.errors import explain
from fluidjax.framework import Operator, Program, Variable
from fluidjax.transpiler.slicing import same_or_split_var

_TRAINERS = ("recv", "fetch_barrier", "concat")
_SHAPED = ("gaussian_random", "fill_constant", "uniform_random", "truncated_gaussian_random")


def server_startup(
    startup: Program, server: Program, params: list[Variable], copies: Mapping[str, list[Variable]]
) -> Program:
    """The startup program of a server.

    Args:
        startup: the startup program passed to transpile().
        server: the server's main program.
        params: the blocks of parameters that it holds.
        copies: the initial copies of these for dc_asgd.
    """
    program = Program()
    program.random_seed = startup.random_seed
    block, held = program.global_block(), server.global_block().vars
    for var in held.values():
        block._clone_variable(var)

    def here(name: str) -> str | None:
        part = next((p.name for p in params if same_or_split_var(p.name, name) and p.name != name), None)
        return part or (name if name in held else None)

    for op in startup.global_block().ops:
        outputs = {slot: here(op.output(slot)[0]) for slot in op.output_names if op.output(slot)}
        if op.type not in _TRAINERS and any(outputs.values()):
            _copy(op, program, {slot: name for slot, name in outputs.items() if name})
    for param, kept in copies.items():
        for copy in kept:
            block.append_op(type="assign", inputs={"X": block.var(param)}, outputs={"Out": block.var(copy.name)})
    return program


def _copy(op: Operator, program: Program, outputs: dict[str, str]) -> None:
    block = program.global_block()
    for name in op.input_arg_names:
        if not block.has_var(name):
            raise ValueError(
                explain(
                    f"op {op.type} of the startup program reads {name} to initialise {', '.join(outputs.values())}",
                    "only variables that the server holds",
                    f"{name}, which is on no server",
                    "initialise the parameter by an op without inputs",
                )
            )
    attrs: dict[str, Any] = op.all_attrs()
    if op.type in _SHAPED:
        attrs["shape"] = list(block.var(outputs["Out"]).shape)
    block.append_op(
        type=op.type,
        inputs={slot: op.input(slot) for slot in op.input_names},
        outputs=outputs,
        attrs=attrs,
    )
