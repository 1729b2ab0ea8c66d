"""Pruning keeps meaning: on random programs that write names many times, the targets get the same values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fluidjax as fluid
from fluidjax.framework import Block, Program

NAMES = ["a", "b", "c", "d"]

scales = st.tuples(st.just("scale"), st.sampled_from(NAMES), st.sampled_from(NAMES), st.sampled_from([2.0, -1.0, 3.0]))
sums = st.tuples(st.just("sum"), st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), st.sampled_from(NAMES))
maybes = st.tuples(st.just("maybe"), st.booleans(), scales)
statements = st.lists(st.one_of(scales, sums, maybes), min_size=1, max_size=12)


def write(program: Program, block: Block, statement: tuple) -> None:
    kind = statement[0]
    if kind == "scale":
        block._append_op_desc("scale", {"X": [statement[1]]}, {"Out": [statement[2]]}, {"scale": statement[3]})
    elif kind == "sum":
        block._append_op_desc("sum", {"X": statement[1]}, {"Out": [statement[2]]})
    else:
        inner = program._create_block(block.idx)
        write(program, inner, statement[2])
        program._rollback()
        block._append_op_desc(
            "conditional_block", {"Cond": []}, {"Out": [statement[2][2]]}, {"sub_block": inner, "holds": statement[1]}
        )


def run(program: Program, block: Block, values: dict[str, float]) -> None:
    """What the ops mean, on plain numbers."""
    for op in block.ops:
        if op.type == "scale":
            values[op.output("Out")[0]] = values[op.input("X")[0]] * op.attr("scale")
        elif op.type == "sum":
            values[op.output("Out")[0]] = sum(values[name] for name in op.input("X"))
        elif op.attr("holds"):
            run(program, op._block_attr("sub_block"), values)


# The branches of these programs note in an attribute of their own whether they run.
@pytest.mark.filterwarnings("ignore:the program has attributes")
@settings(max_examples=150, deadline=None)
@given(statements, st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=1))
def test_targets_keep_their_values(body: list[tuple], target: str, fed: list[str]) -> None:
    program = Program()
    block = program.global_block()
    for name in NAMES:
        block.create_var(name=name, shape=[1], dtype="float32")
    for statement in body:
        write(program, block, statement)
    before = program.desc.serialize_to_string()
    pruned = program._prune([target])
    start = dict(zip(NAMES, (1.0, 10.0, 100.0, 1000.0), strict=True))
    full, small = dict(start), dict(start)
    run(program, block, full)
    run(pruned, pruned.global_block(), small)
    assert small[target] == full[target]
    assert program.desc.serialize_to_string() == before
    assert len(pruned.global_block().ops) <= len(block.ops)
    again = fluid.Program.parse_from_string(pruned.desc.serialize_to_string())
    assert len(again.global_block().ops) == len(pruned.global_block().ops)
    only = program._prune_with_input(fed, [target])
    written = {name for op in only.global_block().ops for name in op.output_arg_names}
    assert not written & set(fed), "what is fed is not computed"


@settings(max_examples=50, deadline=None)
@given(statements)
def test_all_names_as_targets_lose_only_what_nobody_reads(body: list[tuple]) -> None:
    program = Program()
    for name in NAMES:
        program.global_block().create_var(name=name, shape=[1], dtype="float32")
    for statement in body:
        write(program, program.global_block(), statement)
    pruned = program._prune(NAMES)
    values = [dict(zip(NAMES, np.arange(1.0, 5.0), strict=True)) for _ in range(2)]
    run(program, program.global_block(), values[0])
    run(pruned, pruned.global_block(), values[1])
    assert values[0] == values[1]
