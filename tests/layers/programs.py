"""Programs as text: what one layer call writes, to be held against the recorded text of Paddle 1.8.5."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

import fluidjax as fluid

BOOKKEEPING = {"op_callstack", "op_role", "op_role_var", "op_namescope", "op_device"}


def recorded(name: str) -> dict[str, list[str]]:
    """Layer call -> lines, from ``<name>.json.gz`` beside this module."""
    return json.loads(gzip.decompress((Path(__file__).parent / f"{name}.json.gz").read_bytes()))


def data(name: str, shape: list[int], dtype: str = "float32", lod: int = 0) -> Any:
    """A data variable, as ``D`` in the recorded calls."""
    return fluid.data(name, shape, dtype, lod_level=lod)


def written(call: str) -> list[str]:
    """The ops and variables that a layer call writes into fresh programs, one line each."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        eval(call, {"fluid": fluid, "L": fluid.layers, "np": np, "D": data})
    return [line for tag, program in (("m", main), ("s", startup)) for line in describe(tag, program)]


def describe(tag: str, program: Any) -> list[str]:
    block = program.global_block()
    variables = sorted(block.vars.values(), key=lambda v: v.name)
    return [_op_line(tag, op) for op in block.ops] + [_var_line(tag, var) for var in variables]


def _op_line(tag: str, op: Any) -> str:
    ins = {slot: list(op.input(slot)) for slot in sorted(op.input_names) if op.input(slot)}
    outs = {slot: list(op.output(slot)) for slot in sorted(op.output_names) if op.output(slot)}
    attrs = {name: _plain(op.attr(name)) for name in sorted(op.attr_names) if name not in BOOKKEEPING}
    return f"{tag} op {op.type} in={ins} out={outs} at={attrs}"


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return float(np.float32(value)) if isinstance(value, float) else value


def _var_line(tag: str, var: Any) -> str:
    shape = tuple(int(n) for n in var.shape)
    return (
        f"{tag} var {var.name} t={int(var.type)} dt={int(var.dtype)} shape={shape} lod={var.lod_level}"
        f" pers={bool(var.persistable)} stop={bool(var.stop_gradient)}"
    )
