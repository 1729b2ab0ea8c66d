"""Losses that pair their inputs element by element refuse what broadcasting would pair with more than one."""

import numpy as np
import pytest

import fluidjax as fluid
from lowering.errors import OpError

PAIRED = {
    "huber_loss": ("X", "Y", {"delta": 1.0}, ["Residual", "Out"]),
    "modified_huber_loss": ("X", "Y", {}, ["IntermediateVal", "Out"]),
    "hinge_loss": ("Logits", "Labels", {}, ["Loss"]),
    "log_loss": ("Predicted", "Labels", {"epsilon": 1e-4}, ["Loss"]),
    "bce_loss": ("X", "Label", {}, ["Out"]),
    "kldiv_loss": ("X", "Target", {"reduction": "none"}, ["Loss"]),
    "smooth_l1_loss": ("X", "Y", {"sigma": 1.0}, ["Diff", "Out"]),
    "sigmoid_cross_entropy_with_logits": ("X", "Label", {}, ["Out"]),
    "teacher_student_sigmoid_loss": ("X", "Label", {}, ["Y"]),
    "squared_l2_distance": ("X", "Y", {}, ["sub_result", "Out"]),
}


def written(op, inputs, attrs, outputs):
    """A program of the op over declared variables: slot -> shape."""
    program = fluid.Program()
    block = program.global_block()
    given = {slot: block.create_var(name=slot.lower() + "_in", shape=shape, dtype=dtype)
             for slot, (shape, dtype) in inputs.items()}  # fmt: skip
    results = {slot: block.create_var(name=slot.lower() + "_out", dtype="float32") for slot in outputs}
    block.append_op(type=op, inputs=given, outputs=results, attrs=attrs)
    return results[outputs[-1]]


@pytest.mark.parametrize("op", PAIRED)
def test_a_column_and_a_row_make_no_table(op):
    one, other, attrs, outputs = PAIRED[op]
    column, row = ((3, 1), "float32"), ((1, 3), "float32")
    assert written(op, {one: column, other: column}, attrs, outputs).shape[0] == 3
    for wrong in (row, ((3,), "float32")):
        with pytest.raises(OpError, match="must"):
            written(op, {one: column, other: wrong}, attrs, outputs)


def test_each_input_of_a_margin_counts():
    column = ((3, 1), "float32")
    for slot in ("X1", "X2", "Label"):
        inputs = {"X1": column, "X2": column, "Label": column} | {slot: ((3,), "float32")}
        with pytest.raises(OpError, match="X1, X2 and Label must agree"):
            written("margin_rank_loss", inputs, {"margin": 0.1}, ["Activated", "Out"])


@pytest.mark.parametrize("op", ["cross_entropy", "cross_entropy2"])
@pytest.mark.parametrize("shape", [(3, 1, 1), (4, 1), (4,)])
def test_a_label_has_the_rows_of_the_probabilities(op, shape):
    outputs = ["Y"] if op == "cross_entropy" else ["MatchX", "XShape", "Y"]
    assert written(op, {"X": ((3, 5), "float32"), "Label": ((3, 1), "int64")}, {}, outputs).shape == (3, 1)
    with pytest.raises(OpError, match="Label must"):
        written(op, {"X": ((3, 5), "float32"), "Label": (shape, "int64")}, {}, outputs)


def test_soft_labels_have_a_number_for_each_class():
    inputs = {"X": ((3, 5), "float32"), "Label": ((3, 1), "float32")}
    with pytest.raises(OpError, match="soft Label must agree"):
        written("cross_entropy", inputs, {"soft_label": True}, ["Y"])


def test_eager_mode_refuses_them_too():
    with fluid.dygraph.guard():
        column, vector = (fluid.dygraph.to_variable(np.ones(shape, "float32")) for shape in ((3, 1), (3,)))
        with pytest.raises(fluid.core.EnforceNotMet, match="X and Y must agree"):
            fluid.layers.huber_loss(column, vector, 1.0)
