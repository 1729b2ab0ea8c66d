"""Damaged models of Paddle 2 end in an error that says so, before anything runs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fluidjax as fluid
import lowering
from fluidjax.framework import program_view
from fluidjax.proto import framework_pb2 as pb
from lowering.engine.shapes.validate import problems
from tests.newer.test_recorded import recorded

MODEL = Path(__file__).with_name("model") / "inference.pdmodel"
# Programs with scalars, lists of doubles, versions of ops, and blocks.
OTHERS = ("set_value_number", "to_tensor_floats", "while_loop")


@cache
def contents() -> list[bytes]:
    """The bytes to be damaged."""
    return [MODEL.read_bytes(), *(recorded()[name]["program"].tobytes() for name in OTHERS)]


@pytest.mark.filterwarnings("ignore:.*attribute:UserWarning")
@settings(max_examples=120, deadline=None)
@given(st.data())
def test_damaged_bytes(data) -> None:
    content = bytearray(data.draw(st.sampled_from(contents())))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    try:
        program = fluid.Program.parse_from_string(bytes(content))
    except ValueError as error:
        assert "program is damaged" in str(error) or "are not a program" in str(error)
        return
    assert all(isinstance(told, str) for told in problems(program_view(program)))


NUMBER = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.complex_numbers())


@settings(max_examples=60, deadline=None)
@given(st.lists(NUMBER, max_size=4), st.sampled_from(["SCALAR", "SCALARS", "FLOAT64", "FLOAT64S", "VAR", "VARS"]))
def test_attributes_of_any_newer_type_in_any_place(numbers, kind) -> None:
    """An attribute of a type that its op does not expect there is told, whatever it holds."""
    message = pb.ProgramDesc.FromString(contents()[0])
    op = next(op for op in message.blocks[0].ops if op.type == "conv2d")
    wrong = pb.OpDesc.Attr(name="strides", type=pb.AttrType.Value(kind), var_name="x", vars_name=["y"], float64=0.5)
    wrong.float64s.extend(float(abs(n)) for n in numbers)
    wrong.scalar.type = 3
    for number in numbers:
        scalar = wrong.scalars.add(type=4)
        scalar.c.r, scalar.c.i = complex(number).real, complex(number).imag
    for index, attr in enumerate(op.attrs):
        if attr.name == "strides":
            op.attrs[index].CopyFrom(wrong)
    program = fluid.Program.parse_from_string(message.SerializeToString())
    if kind in ("SCALARS", "FLOAT64S") and not numbers:
        return  # an empty list is one of any type
    with pytest.raises(lowering.UnknownOpError, match="strides"):
        lowering.engine.shapes.validate.validate(program_view(program))


def test_versions_of_any_size() -> None:
    message = pb.ProgramDesc.FromString(contents()[0])
    message.op_version_map.pair.add(op_name="conv2d").op_version.version = 2**31 - 1
    message.op_version_map.pair.add(op_name="no_op_of_the_program").op_version.version = 2**31 - 1
    message.version.version = 2**63 - 1
    told = problems(program_view(fluid.Program.parse_from_string(message.SerializeToString())))
    assert len(told) == 1 and "conv2d: version 2147483647" in told[0]
