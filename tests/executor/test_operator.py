"""Ops made by name and run one at a time: fluid.op.Operator, and what op tests ask fluid.core about an op."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fluidjax as fluid
import lowering
from fluidjax import core
from fluidjax.op import OpDescCreationMethod, Operator, get_all_op_protos
from lowering.ops.shared import concrete_scalar
from lowering.registry import table

CPU = fluid.CPUPlace()


def scope_with(**values):
    scope = core.Scope()
    for name, value in values.items():
        tensor = scope.var(name).get_tensor()
        if value is not None:
            tensor.set(value, CPU)
    return scope


def read(scope, name):
    return np.array(scope.find_var(name).get_tensor())


def test_runs_on_the_variables_of_a_scope():
    scope = scope_with(x=np.arange(6, dtype="float32").reshape(2, 3), y=None)
    Operator("scale", X="x", Out="y", scale=2.0, bias=1.0).run(scope, CPU)
    np.testing.assert_array_equal(read(scope, "y"), [[1, 3, 5], [7, 9, 11]])
    np.testing.assert_array_equal(read(scope, "x"), [[0, 1, 2], [3, 4, 5]])


def test_sees_elements_that_were_changed_in_between():
    scope = scope_with(x=np.ones((2, 3), "float64"), y=None)
    op = Operator("square", X="x", Out="y")
    op.run(scope, CPU)
    tensor = scope.find_var("x").get_tensor()
    tensor._set_double_element(4, 3.0)
    op.run(scope, CPU)
    assert tensor._get_double_element(4) == 3.0
    np.testing.assert_array_equal(read(scope, "y"), [[1, 1, 1], [1, 9, 1]])


def test_central_differences_by_running_an_op_again_and_again():
    """How op tests check a gradient: one element up, one down, the mean of the output."""
    x = np.linspace(-1, 1, 6, dtype="float64").reshape(2, 3)
    scope = scope_with(x=x, y=None)
    op, tensor, found = Operator("tanh", X="x", Out="y"), scope.find_var("x").get_tensor(), np.zeros(6)
    for i in range(6):
        origin, means = tensor._get_double_element(i), []
        for step in (1e-4, -1e-4):
            tensor._set_double_element(i, origin + step)
            op.run(scope, CPU)
            means.append(read(scope, "y").mean())
        tensor._set_double_element(i, origin)
        found[i] = (means[0] - means[1]) / 2e-4
    np.testing.assert_allclose(found.reshape(2, 3), (1 - np.tanh(x) ** 2) / 6, rtol=1e-6)


def test_a_rule_that_needs_numbers_on_the_host_is_not_traced_in_vain_again(monkeypatch):
    traced = []

    @lowering.op(out="Out", rows=lowering.WISE)
    def operator_ones(x):
        """Out = as many ones as X says."""
        traced.append(isinstance(x, jax.core.Tracer))
        return jnp.ones((int(concrete_scalar(x, "X")),))

    monkeypatch.setitem(table._REGISTRY, "operator_ones", table._REGISTRY.pop("operator_ones"))
    scope = scope_with(x=np.array([2], "int32"), y=None)
    op = Operator("operator_ones", X="x", Out="y")
    op.run(scope, CPU)
    found_out = traced.count(True)
    for number in (3, 1):
        scope.find_var("x").get_tensor().set(np.array([number], "int32"), CPU)
        op.run(scope, CPU)
        assert read(scope, "y").tolist() == [1.0] * number
    assert traced.count(True) == found_out and traced.count(False) >= 3


def test_keeps_lod_and_fills_selected_rows():
    scope = scope_with(x=np.arange(4, dtype="float32").reshape(4, 1), y=None)
    scope.find_var("x").get_tensor().set_recursive_sequence_lengths([[1, 3]])
    Operator("sequence_softmax", X="x", Out="y").run(scope, CPU)
    e = np.exp(np.array([1.0, 2, 3]) - 3)
    np.testing.assert_allclose(read(scope, "y").ravel(), [1, *(e / e.sum())], rtol=1e-6)
    assert scope.find_var("y").get_tensor().recursive_sequence_lengths() == [[1, 3]]

    rows = core.Scope()
    for name, value in (("p", np.ones((5, 2), "float32")), ("lr", np.ones(1, "float32"))):
        rows.var(name).get_tensor().set(value, CPU)
    gradient = rows.var("g").get_selected_rows()
    gradient.set_height(5)
    gradient.set_rows([3, 1])
    gradient.get_tensor().set(np.full((2, 2), 0.5, "float32"), CPU)
    Operator("sgd", Param="p", Grad="g", LearningRate="lr", ParamOut="p").run(rows, CPU)
    np.testing.assert_array_equal(read(rows, "p")[:, 0], [1, 0.5, 1, 0.5, 1])


def test_tells_what_it_is():
    op = Operator("dropout", X="x", Out="y", Mask="m", dropout_prob=0.0)
    assert (op.type(), op.inputs(), op.outputs()) == (
        "dropout",
        {"X": ["x"], "Seed": []},
        {"Out": ["y"], "Mask": ["m"]},
    )
    assert (op.input_vars(), op.output_vars(), op.no_intermediate_outputs()) == (["x"], ["y", "m"], ["y"])
    assert str(op) == "Op(dropout), inputs:{Seed[], X[x]}, outputs:{Mask[m], Out[y]}."
    assert Operator.get_op_inputs("sum") == [("X", True)]
    assert Operator.get_op_output_names("dropout") == ["Out", "Mask"]
    assert {"scale", "bias", "op_role"} <= set(Operator.get_op_attr_names("scale"))
    assert len(Operator.types()) == len(get_all_op_protos())


@pytest.mark.parametrize(
    ("args", "slots", "error", "words"),
    [
        (("nosuch",), {}, ValueError, "The operator: nosuch is not registered"),
        (("scale", "x", "y"), {}, ValueError, "keyword arguments"),
        (("scale",), {"X": ["a", "b"], "Out": "y"}, ValueError, "Input X expects only one input, but 2 are given"),
        (("scale",), {"X": 3, "Out": "y"}, TypeError, "Input X is 3"),
        (("scale",), {"X": "x", "Out": "y", "scale": "a"}, TypeError, "attribute scale"),
    ],
)
def test_refuses(args, slots, error, words):
    with pytest.raises(error, match=words):
        Operator(*args, **slots)


def test_wants_its_variables_in_the_scope():
    op = Operator("scale", X="x", Out="y", scale=2.0)
    with pytest.raises(core.EnforceNotMet, match="no variable 'y'"):
        op.run(scope_with(x=np.ones(2, "float32")), CPU)
    with pytest.raises(core.EnforceNotMet, match="x"):
        op.run(scope_with(x=None, y=None), CPU)


def test_descs_by_keyword():
    (proto,) = [p for p in get_all_op_protos() if p.type == "scale"]
    desc = OpDescCreationMethod(proto)(X="x", Out="y", scale=0.5)
    slots = [(s.parameter, list(s.arguments)) for s in desc.inputs]
    assert slots == [("X", ["x"]), ("ScaleTensor", [])]  # as in the proto
    with pytest.raises(TypeError, match="expected an OpProto"):
        OpDescCreationMethod("scale")


def test_gradient_of_a_desc_is_what_append_backward_writes():
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        x = fluid.data("x", [2, 3])
        x.stop_gradient = False
        loss = fluid.layers.mean(fluid.layers.dropout(fluid.layers.reshape(fluid.layers.fc(x, 3), [3, 2]), 0.5))
    forward = list(program.global_block().ops)
    with fluid.program_guard(program):
        fluid.backward.append_backward(loss)
    written = {op.type: op for op in program.global_block().ops[len(forward) :]}
    for op in forward:
        (grad,), names = core.get_grad_op_desc(op.desc, set(), [])
        same = written[grad.type()]
        assert grad.inputs() == same.desc.inputs()
        assert grad.outputs() == same.desc.outputs()
        assert set(grad.attr_names()) <= set(same.desc.attr_names())
        assert names == {
            n: n.removesuffix("@GRAD") for n in [*grad.input_arg_names(), *grad.output_arg_names()] if "@GRAD" in n
        }


def test_gradients_that_nobody_needs_are_left_out():
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        fluid.layers.fc(fluid.data("x", [2, 3]), 3)
    (grad,), _ = core.get_grad_op_desc(program.global_block().ops[0].desc, {"x@GRAD"}, [])
    assert grad.output("X@GRAD") == []


UNREAD = {  # what 1.8.5 answers, of all ops with an answer
    "Bias": "gru_unit_grad hierarchical_sigmoid_grad layer_norm_grad nce_grad",
    "Bias Input": "gru_grad",
    "CVM": "cvm",
    "Emission Transition": "linear_chain_crf_grad",
    "Input": "fill_constant_batch_size_like gaussian_random_batch_size_like slice_grad strided_slice_grad trace_grad "
    "uniform_random_batch_size_like",
    "Logits": "warpctc_grad",
    "RankParam": "rank_attention_grad",
    "Updates": "scatter_grad scatter_nd_add_grad sequence_scatter_grad",
    "W": "lookup_table_grad lookup_table_v2_grad",
    "X": "argsort_grad bicubic_interp_grad bilinear_interp_grad center_loss_grad concat_grad cvm_grad expand_as_grad "
    "expand_grad fill_zeros_like2 flatten_grad gather_grad gather_nd_grad index_sample_grad index_select_grad "
    "kldiv_loss_grad lod_reset_grad max_pool2d_with_index_grad max_pool3d_with_index_grad mean_grad "
    "nearest_interp_grad pad2d_grad reduce_mean_grad reduce_sum_grad roi_align_grad roll_grad sequence_concat_grad "
    "sequence_pad_grad sequence_pool_grad sequence_slice_grad sequence_softmax_grad sequence_unpad_grad "
    "space_to_depth_grad squeeze_grad trilinear_interp_grad unfold_grad unsqueeze_grad",
    "X Y": "elementwise_add_grad elementwise_sub_grad sequence_expand_as_grad sequence_expand_grad "
    "squared_l2_distance_grad where_grad",
    "Y": "crop sequence_expand sequence_expand_as",
}


@pytest.mark.parametrize("slots", UNREAD)
def test_slots_whose_values_are_not_read(slots):
    for op_type in UNREAD[slots].split():
        assert set(slots.split()) <= core.infer_no_need_buffer_slots(op_type, {}, {}, {}), op_type


def test_slots_whose_values_are_read():
    assert core.infer_no_need_buffer_slots("elementwise_add_grad", {}, {}, {}) == {"X", "Y"}
    assert core.infer_no_need_buffer_slots("mean_grad", {}, {}, {}) == {"X"}
    assert core.infer_no_need_buffer_slots("mul_grad", {}, {}, {}) == set()
    over = [t for t in ("reshape2", "relu", "sum", "sqrt_grad", "mul", "sgd") if core.has_infer_inplace(t)]
    assert over == ["reshape2", "relu", "sum", "sqrt_grad"]
    assert core.is_float16_supported(CPU)
