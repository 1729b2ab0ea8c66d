"""Layers write the ops, variable names and attributes that Paddle 1.8.5 writes.

``programs.json.gz`` holds, for each line below ``build``, the ops of the main and startup programs as the real
framework made them; floats to six digits.
"""

import gzip
import json
import warnings
from pathlib import Path

import pytest

import fluidjax as fluid

RECORDED = json.loads(gzip.decompress((Path(__file__).parent / "programs.json.gz").read_bytes()))["layers"]
BOOKKEEPING = {"op_role", "op_role_var", "op_callstack", "op_namescope", "op_device"}


def variable(name, shape, dtype="float32", lod=0):
    return fluid.data(name, shape, dtype, lod_level=lod)


def plain(value):
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def ops_of(program):
    return [
        [
            op.type,
            {slot: op.input(slot) for slot in op.input_names},
            {slot: op.output(slot) for slot in op.output_names},
            {name: plain(op.attr(name)) for name in op.attr_names if name not in BOOKKEEPING},
        ]
        for block in program.blocks
        for op in block.ops
    ]


def without_seed(ops):
    """Initialisers draw their seed."""
    return [[t, i, o, {k: v for k, v in a.items() if k != "seed"}] for t, i, o, a in ops]


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda r: r["build"])
def test_program(recorded):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eval(recorded["build"], {"fluid": fluid, "L": fluid.layers, "X": variable})
    assert ops_of(main) == recorded["main"]
    assert without_seed(ops_of(startup)) == without_seed(recorded["startup"])
    assert sorted(v.name for v in main.list_vars()) == recorded["vars"]
