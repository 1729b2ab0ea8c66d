"""Operator: what is checked when one is appended, its slots and attributes."""

from __future__ import annotations

import numpy as np
import pytest

import fluidjax as fluid
import lowering
from fluidjax import layers
from fluidjax.core import AttrType, EnforceNotMet, VarDesc
from fluidjax.framework import Program
from fluidjax.framework.attrs import type_of_value


@pytest.fixture
def block():
    """The global block of a program with variables x [-1, 4] and y."""
    program = Program()
    with fluid.program_guard(program):
        block = program.global_block()
        block.create_var(name="x", shape=[-1, 4], dtype="float32", lod_level=1)
        block.create_var(name="w", shape=[4, 3], dtype="float32")
        block.create_var(name="y", dtype="float32")
        yield block


def mul(block, **changes):
    settings = {"type": "mul", "inputs": {"X": "x", "Y": ["w"]}, "outputs": {"Out": block.var("y")}, "attrs": {}}
    return block.append_op(**{**settings, **changes})


def test_slots_and_attributes(block) -> None:
    op = mul(block, attrs={"x_num_col_dims": 1, "y_num_col_dims": None})
    assert (op.type, op.idx, op.block) == ("mul", 0, block)
    assert (op.input_names, op.output_names) == (["X", "Y"], ["Out"])
    assert (op.input("X"), op.input("Nope"), op.input_arg_names) == (["x"], [], ["x", "w"])
    assert op.output_arg_names == ["y"] and block.var("y").op is op
    assert op.attr("y_num_col_dims") == 1, "None means the default"
    assert op.attr_type("x_num_col_dims") == AttrType.INT == 0
    assert op.has_attr("op_role") and not op.has_attr("nope")
    assert set(op.all_attrs()) == set(op.attr_names)
    with pytest.raises(EnforceNotMet, match="Attribute nope is not found: op mul has x_num_col_dims"):
        op.attr("nope")


def test_outputs_are_inferred(block) -> None:
    mul(block)
    y = block.var("y")
    assert (y.shape, y.dtype, y.lod_level) == ((-1, 3), VarDesc.VarType.FP32, 1)


@pytest.mark.parametrize(
    ("changes", "error", "told"),
    [
        ({"type": None}, ValueError, "(?s)can not be None.*append_op"),
        ({"type": "mull"}, ValueError, '(?s)Operator "mull" has not been registered.*similar.*mul'),
        ({"inputs": {"X": "x"}}, ValueError, "Input Y not found. Give it"),
        ({"inputs": {"X": ["x", "x"], "Y": "w"}}, ValueError, "Input X expects only one input, but 2 are given"),
        ({"inputs": {"X": "x", "Y": 3}}, TypeError, "input Y holds 3 of type int. Expected a Variable"),
        ({"inputs": {"X": "x", "Y": "absent"}}, ValueError, "variable absent is not found in block 0"),
        ({"outputs": {}}, ValueError, "Output Out not found"),
        ({"outputs": {"Out": "absent"}}, ValueError, "variable absent is not found in block 0"),
        ({"attrs": {"x_num_col_dims": "a"}}, lowering.AttrError, "'x_num_col_dims' expects INT, received 'a'"),
    ],
)
def test_a_bad_op_is_told_and_leaves_no_trace(block, changes, error, told) -> None:
    with pytest.raises(error, match=told) as caught:
        mul(block, **changes)
    if changes.get("type", "mul") is not None:
        told = [str(caught.value), *getattr(caught.value, "__notes__", ())]
        assert any("test_operator.py:" in text for text in told), "the user's own line"
    assert not block.ops and not block.proto.ops


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"inputs": {"X": "x", "Y": "w", "Z": "w"}}, "input slot Z is not one of the op's: X, Y"),
        ({"outputs": {"Out": "y", "Rest": "w"}}, "output slot Rest is not one of the op's: Out"),
        ({"attrs": {"x_num_col_dims": 1, "nope": 1}}, "attribute nope is not one of the op's: .*x_num_col_dims"),
    ],
)
def test_what_an_op_does_not_have_is_left_out_and_told(block, changes, told) -> None:
    with pytest.warns(UserWarning, match=told) as caught:
        op = mul(block, **changes)
    assert caught[0].filename == __file__, "the user's own line"
    assert (op.input_names, op.output_names, op.has_attr("nope")) == (["X", "Y"], ["Out"], False)


def test_shapes_that_do_not_fit_are_told(block) -> None:
    block.create_var(name="v", shape=[5, 3], dtype="float32")
    block.create_var(name="known", shape=[2, 4], dtype="float32")
    with pytest.raises(lowering.OpError, match=r"op mul(.|\n)*test_operator\.py:"):
        mul(block, inputs={"X": "known", "Y": "v"})
    assert not block.ops


def test_changing_an_op(block) -> None:
    op = mul(block)
    op._set_attr("x_num_col_dims", 2)
    assert op.attr("x_num_col_dims") == 2 and op.attr_type("x_num_col_dims") == AttrType.INT
    op._set_attr("my_note", ["a", "b"])
    assert op.attr("my_note") == ["a", "b"] and op.attr_type("my_note") == AttrType.STRINGS
    op._remove_attr("my_note")
    assert not op.has_attr("my_note")
    op._rename_input("x", "x2")
    op._rename_output("y", "y2")
    assert op.input("X") == ["x2"] and op.output("Out") == ["y2"]
    with pytest.raises(TypeError, match="attribute x_num_col_dims is of type INT"):
        op._set_attr("x_num_col_dims", 1.5)
    assert op.attr("op_device") == ""
    op._set_attr("op_device", "gpu:0")
    assert op.attr("op_device") == "gpu:0"


@pytest.mark.parametrize(
    ("name", "value", "kind", "kept"),
    [
        ("padding_idx", 2.5, AttrType.LONG, 2),
        ("padding_idx", np.array([3]), AttrType.LONG, 3),
        ("is_distributed", 2.5, AttrType.BOOL, True),
        ("is_distributed", np.float32(0), AttrType.BOOL, False),
        ("is_distributed", np.array(1), AttrType.BOOL, True),
        ("height_sections", [2.5, 2], AttrType.LONGS, [2, 2]),
    ],
)
def test_numbers_are_converted_as_in_fluid(block, name, value, kind, kept) -> None:
    block.create_var(name="ids", shape=[3, 1], dtype="int64")
    op = block.append_op(
        type="lookup_table", inputs={"W": "x", "Ids": "ids"}, outputs={"Out": "y"}, attrs={name: value}
    )
    assert op.attr_type(name) == kind and op.attr(name) == kept


def test_a_fraction_is_no_whole_number(block) -> None:
    block.create_var(name="ids", shape=[3, 1], dtype="int64")
    slots = {"inputs": {"W": "x", "Ids": "ids"}, "outputs": {"Out": "y"}}
    for value in (float("nan"), float("inf"), 1e40):
        with pytest.raises(lowering.AttrError, match="padding_idx"):
            block.append_op(type="lookup_table", **slots, attrs={"padding_idx": value})


@pytest.mark.parametrize(
    ("op_type", "name", "value", "kind"),
    [
        ("cumsum", "mine", True, AttrType.INT),
        ("cumsum", "exclusive", 2, AttrType.BOOL),
        ("cumsum", "exclusive", 2.5, AttrType.FLOAT),
        ("dropout_grad", "is_test", True, AttrType.BOOL),
        ("dropout_grad", "mine", [True], AttrType.INTS),
        ("lookup_table", "table_names", [], AttrType.STRINGS),
        ("lookup_table", "height_sections", [], AttrType.LONGS),
    ],
)
def test_types_of_attributes_of_a_bare_desc(op_type, name, value, kind) -> None:
    desc = fluid.Program().global_block().desc.append_op()
    desc.set_type(op_type)
    desc._set_attr(name, value)
    assert desc.attr_type(name) == kind and desc.attr(name) == value or bool(value) is desc.attr(name)


def test_a_list_that_is_handed_out_is_a_copy(block) -> None:
    op = block.append_op(type="fill_constant", outputs={"Out": "y"}, attrs={"shape": [2, 3], "dtype": 5})
    op.attr("shape").append(9)
    op.output("Out").append("z")
    assert op.attr("shape") == [2, 3] and op.output("Out") == ["y"]


def test_block_attributes(block) -> None:
    program = block.program
    inner = program._create_block()
    program._rollback()
    op = block._append_op_desc("conditional_block", {}, {}, {"sub_block": inner, "is_scalar_condition": True})
    assert op._block_attr("sub_block") is inner and op._block_attr_id("sub_block") == 1
    assert op.attr("sub_block").id == 1 and op.all_attrs()["sub_block"] is inner
    assert op.attr_type("sub_block") == AttrType.BLOCK
    assert op._sub_block_ids() == [1]
    several = block._append_op_desc("anything", {}, {}, {"blocks": [inner]})
    assert several.attr_type("blocks") == AttrType.BLOCKS and several._blocks_attr("blocks") == [inner]


def test_a_desc_knows_the_block_that_its_op_is_in(block) -> None:
    op = mul(block)
    inner = block.program._create_block()
    block.program._rollback()
    assert op.desc.block() == block.desc and block.desc.op(0).block().id == 0
    assert inner.desc.append_op().block() == inner.desc == inner.desc._prepend_op().block()
    assert fluid.core.OpDesc().block() is None


def test_raw_ops_are_written_as_given(block) -> None:
    like = mul(block)
    op = block._append_op_desc(
        "no_such_op",
        {"Y": ["w"], "X": [], "Out@GRAD": ["g"]},
        {"X@GRAD": ["@EMPTY@"]},
        {"x_num_col_dims": 7},
        like=like,
    )
    assert op.input_names == ["Out@GRAD", "X", "Y"], "slots are sorted by name"
    assert op.attr_names == ["x_num_col_dims"] and op.attr_type("x_num_col_dims") == AttrType.INT
    first = block._append_op_desc("first", {}, {}, index=0)
    assert [o.type for o in block.ops] == ["first", "mul", "no_such_op"] and first.idx == 0


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, AttrType.INT),
        (np.bool_(False), AttrType.INT),
        (3, AttrType.INT),
        (np.int64(3), AttrType.INT),
        (2**40, AttrType.LONG),
        (1.5, AttrType.FLOAT),
        ("a", AttrType.STRING),
        (b"a", AttrType.STRING),
        ([], AttrType.INTS),
        ([1, 2], AttrType.INTS),
        ([1, 2**40], AttrType.LONGS),
        ([1, 2.5], AttrType.FLOATS),
        ((True, False), AttrType.INTS),
        (["a"], AttrType.STRINGS),
        (np.array([1.0]), AttrType.FLOATS),
    ],
)
def test_bare_values_have_types(value, kind) -> None:
    assert type_of_value(value) == kind


@pytest.mark.parametrize("value", [object(), {"a": 1}, [1, "a"], [[1]]])
def test_values_that_no_attribute_holds(value) -> None:
    with pytest.raises(TypeError, match="no attribute can hold"):
        type_of_value(value)


def test_an_op_without_a_kernel_has_no_device() -> None:
    """As 1.8.5 says, too: scripts count these warnings."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        i, ten = (layers.fill_constant([1], "int64", value) for value in (0, 10))
        holds = layers.less_than(i, ten)
        with fluid.device_guard("cpu"):
            with (
                pytest.warns(UserWarning, match=r"The Op\(while\) is not support to set device\.") as told,
                layers.While(holds).block(),
            ):
                layers.increment(i)
                layers.less_than(i, ten, cond=holds)
            layers.fill_constant([1], "int64", 0)
    assert len(told) == 1
    devices = [(op.type, op.attr("op_device")) for op in main.global_block().ops[-2:]]
    assert devices == [("while", ""), ("fill_constant", "cpu")]
    assert [op.attr("op_device") for op in main.block(1).ops] == ["cpu", "cpu"]
