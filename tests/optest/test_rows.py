"""Ops run alone on SelectedRows and tensor arrays: whoever took these from the scope before sees what the op left."""

from __future__ import annotations

import numpy as np

from fluidjax import core
from fluidjax.op import Operator

PLACE = core.CPUPlace()


def _rows(scope, name, rows, height, values):
    held = scope.var(name).get_selected_rows()
    held.set_rows(rows)
    held.set_height(height)
    held.get_tensor().set(np.asarray(values, "float32"), PLACE)
    return held


def test_the_tensor_of_selected_rows_stays_the_users():
    for out in ("Out", "X"):
        scope = core.Scope()
        values = np.arange(6, dtype="float32").reshape(3, 2)
        _rows(scope, "X", [4, 0, 7], 10, values)
        left = scope.var(out).get_selected_rows()
        tensor = left.get_tensor()
        Operator("scale", X="X", Out=out, scale=2.0).run(scope, PLACE)
        assert scope.find_var(out).get_selected_rows() is left and left.get_tensor() is tensor
        assert left.rows() == [4, 0, 7] and left.height() == 10
        np.testing.assert_array_equal(np.array(tensor), values * 2)


def test_sgd_moves_the_rows_of_a_table_where_the_table_has_them():
    scope = core.Scope()
    table = np.arange(8, dtype="float32").reshape(4, 2)
    grad = np.ones((3, 2), "float32")
    param = _rows(scope, "Param", [9, 2, 5, 0], 10, table)
    _rows(scope, "Grad", [5, 9, 5], 10, grad)
    scope.var("LearningRate").get_tensor().set(np.array([0.5], "float32"), PLACE)
    Operator("sgd", Param="Param", Grad="Grad", LearningRate="LearningRate", ParamOut="Param").run(scope, PLACE)
    assert param.rows() == [9, 2, 5, 0] and param.height() == 10
    np.testing.assert_array_equal(np.array(param.get_tensor()), table - [[0.5], [0], [1.0], [0]])


def test_a_lazy_step_leaves_the_other_rows_of_an_output_as_they_were():
    scope, ones = core.Scope(), np.ones((4, 2), "float32")
    _rows(scope, "Grad", [2], 4, [[1.0, 1.0]])
    single = dict.fromkeys(["LearningRate", "Beta1Pow", "Beta2Pow"], np.array([0.5], "float32"))
    given = {"Param": ones, "Moment1": ones, "Moment2": ones, **single}
    made = {f"{slot}Out": np.full_like(x, -7) for slot, x in given.items() if slot != "LearningRate"}
    for name, value in {**given, **made}.items():
        scope.var(name).get_tensor().set(value, PLACE)
    names = {name: name for name in ["Grad", *given, *made]}
    Operator("adam", lazy_mode=True, **names).run(scope, PLACE)
    for slot in ("ParamOut", "Moment1Out", "Moment2Out"):
        now = np.array(scope.find_var(slot).get_tensor())
        assert (now[[0, 1, 3]] == -7).all() and (now[2] > 0).all(), slot
    Operator("adam", lazy_mode=True, **{**names, "ParamOut": "Param"}).run(scope, PLACE)
    assert (np.array(scope.find_var("Param").get_tensor())[[0, 1, 3]] == 1).all()


def test_an_array_stays_the_users():
    scope = core.Scope()
    array = scope.var("Out").get_lod_tensor_array()
    for name, value in (("X", [1.0, 2.0]), ("I", [0])):
        scope.var(name).get_tensor().set(np.array(value, "float32" if name == "X" else "int64"), PLACE)
    Operator("write_to_array", X="X", I="I", Out="Out").run(scope, PLACE)
    assert len(array) == 1
    np.testing.assert_array_equal(np.array(array[0]), [1, 2])


def test_ops_without_kernels_run_where_an_accelerator_is():
    assert core.op_support_gpu("sum") == core.is_compiled_with_cuda()
    assert core.op_support_gpu("while") and core.op_support_gpu("feed")


def test_kernels_are_named_as_tests_ask_for_them():
    kernels = core._get_all_register_op_kernels()
    for name in ("relu", "relu_grad", "softmax_grad", "sequence_pool_grad"):
        assert "data_type[double]:data_layout[ANY_LAYOUT]:place[CPUPlace]:library_type[PLAIN]" in kernels[name]
    assert not {"while", "conditional_block", "scale_grad", "gaussian_random_grad"} & set(kernels)
