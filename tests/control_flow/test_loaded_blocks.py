"""Loops and branches inside each other as the real Paddle 1.8.5 writes them, differentiated here.

``nested_blocks.json.gz`` holds three forward programs by name, as serialized ProgramDescs. In each, ``held`` is 2 y, a
block inside a block that runs assigns 3 x to it where x is positive, and the outer block then computes tanh of it.
"""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import fluidjax as fluid

RECORDED = json.loads(gzip.decompress((Path(__file__).parent / "data" / "nested_blocks.json.gz").read_bytes()))


def loaded(name: str) -> fluid.Program:
    program = fluid.Program.parse_from_string(base64.b64decode(RECORDED[name]))
    for data in ("x", "y"):
        program.global_block().var(data).stop_gradient = False
    return program


def outer_op(program: fluid.Program):
    return next(op for op in program.global_block().ops if op.has_attr("sub_block"))


@pytest.mark.parametrize("x", [0.1, -0.1])
@pytest.mark.parametrize("name", RECORDED)
def test_a_value_that_a_block_inside_may_have_left_has_a_gradient(name: str, x: float) -> None:
    program = loaded(name)
    block = program.global_block()
    with fluid.program_guard(program):
        fetch = fluid.gradients([block.var("reduce_sum_0.tmp_0")], [block.var("x"), block.var("y")])
    with fluid.scope_guard(fluid.Scope()):
        feed = {"x": np.full(1, x), "y": np.full(1, 0.2)}
        found = fluid.Executor(fluid.CPUPlace()).run(program, feed=feed, fetch_list=fetch)
    slope = 1 - np.tanh(3 * x if x > 0 else 0.4) ** 2
    np.testing.assert_allclose(np.concatenate(found), [3 * slope, 0] if x > 0 else [0, 2 * slope], atol=1e-12)


@pytest.mark.parametrize("name", RECORDED)
def test_a_loaded_program_is_left_as_it_is_until_it_is_differentiated(name: str) -> None:
    program = loaded(name)
    assert "scale_0.tmp_0" not in outer_op(program).input_arg_names
    with fluid.program_guard(program):
        fluid.gradients([program.global_block().var("reduce_sum_0.tmp_0")], [program.global_block().var("y")])
    assert outer_op(program).input_arg_names.count("scale_0.tmp_0") == 1
