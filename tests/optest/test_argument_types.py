"""Wrong kinds of arguments are refused when a program is built, by the kind of error that 1.8.5 raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import dygraph, layers


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        yield


ARRAY = np.ones((1, 1), "float32")


def data(dtype: str) -> Any:
    return fluid.data("data", [2, 2], dtype)


def one(dtype: str = "float32") -> Any:
    return layers.fill_constant([1], dtype, 1.0)


def holds() -> Any:
    return layers.less_than(one(), one())


def loss() -> Any:
    return layers.mean(layers.fc(fluid.data("x", [2, 2]), 2))


def attention(*dtypes: str) -> Any:
    return fluid.nets.scaled_dot_product_attention(*(layers.fill_constant([2, 3, 4], kind, 1.0) for kind in dtypes))


def in_recurrence(use: Callable[[Any, Any], Any]) -> None:
    rnn, rows = layers.DynamicRNN(), fluid.data("rows", [None, 4], lod_level=1)
    with rnn.block():
        use(rnn, rnn.step_input(rows))


REFUSED: list[tuple[type[Exception], Callable[[], Any]]] = [
    (TypeError, lambda: layers.cond(1, one, one)),
    (TypeError, lambda: layers.cond(holds(), 1, one)),
    (TypeError, lambda: layers.cond(holds(), one, 1)),
    (TypeError, lambda: layers.cond(holds(), one, one, name=3)),
    (ValueError, lambda: layers.cond(holds(), one, lambda: (one(), one()))),
    (TypeError, lambda: layers.case(1, one)),
    (TypeError, lambda: layers.case([1], one)),
    (TypeError, lambda: layers.case([(holds(), one, 3)], one)),
    (TypeError, lambda: layers.case([(1, one)], one)),
    (TypeError, lambda: layers.case([(holds(), 2)], one)),
    (TypeError, lambda: layers.case([(holds(), one)], 3)),
    (TypeError, lambda: layers.switch_case(1, {1: one})),
    (TypeError, lambda: layers.switch_case(one(), {1: one})),
    (TypeError, lambda: layers.switch_case(one("int32"), 3)),
    (TypeError, lambda: layers.switch_case(one("int32"), [(1, 2, 3)])),
    (TypeError, lambda: layers.switch_case(one("int32"), {"1": one})),
    (ValueError, lambda: layers.switch_case(one("int32"), [(1, one), (1, one)])),
    (TypeError, lambda: layers.switch_case(one("int32"), {1: 3})),
    (TypeError, lambda: layers.switch_case(one("int32"), {1: one}, 3)),
    (TypeError, lambda: layers.while_loop(holds(), lambda v: v, [one()])),
    (TypeError, lambda: layers.while_loop(lambda v: holds(), one(), [one()])),
    (ValueError, lambda: layers.while_loop(lambda v: holds(), lambda v: v, [])),
    (TypeError, lambda: layers.while_loop(lambda v: holds(), lambda v: v, one())),
    (TypeError, lambda: layers.while_loop(lambda v: 1, lambda v: v, [one()])),
    (TypeError, lambda: layers.while_loop(lambda v: v, lambda v: v, [one()])),
    (ValueError, lambda: layers.while_loop(lambda v: holds(), lambda v: [v, v], [one()])),
    (TypeError, lambda: layers.create_global_var(3, 1.0, "float32")),
    (TypeError, lambda: layers.fill_constant(one(), "float32", 1.0)),
    (TypeError, lambda: layers.fill_constant([2, one()], "float32", 1.0)),
    (TypeError, lambda: layers.create_global_var([3.0], 1.0, "float32")),
    (TypeError, lambda: layers.adaptive_pool2d(one("bool"), 1)),
    (TypeError, lambda: layers.adaptive_pool3d(ARRAY, 1)),
    (TypeError, lambda: layers.affine_grid(one(), one("int64"))),
    (TypeError, lambda: layers.linspace([0], 2, 5, "float32")),
    (TypeError, lambda: layers.linspace(one("int32"), 2, 5, "float32")),
    (TypeError, lambda: layers.linspace(0, 2, one("int64"), "float32")),
    (TypeError, lambda: layers.kron(one(), one(), out=one("bool"))),
    (TypeError, lambda: layers.ones_like(one(), out=data("uint8"))),
    (TypeError, lambda: layers.zeros_like(one(), out=ARRAY)),
    (TypeError, lambda: layers.log_softmax(one("int32"))),
    (TypeError, lambda: layers.selu(data("float16"))),
    (TypeError, lambda: layers.mish(data("float16"))),
    (TypeError, lambda: layers.prelu(data("float16"), "all")),
    (TypeError, lambda: layers.sums([data("float16")])),
    (TypeError, lambda: layers.sums([one()], out=one("bool"))),
    (TypeError, lambda: layers.unique(one("bool"))),
    (TypeError, lambda: layers.unique_with_counts(ARRAY)),
    (TypeError, lambda: layers.teacher_student_sigmoid_loss(one(), one("int64"))),
    (TypeError, lambda: fluid.backward.append_backward(3)),
    (TypeError, lambda: fluid.backward.append_backward(loss(), parameter_list="w")),
    (TypeError, lambda: fluid.backward.append_backward(loss(), parameter_list=[3])),
    (TypeError, lambda: fluid.backward.append_backward(loss(), no_grad_set=3)),
    (TypeError, lambda: fluid.backward.append_backward(loss(), no_grad_set=[3])),
    (TypeError, lambda: fluid.backward.append_backward(loss(), callbacks=3)),
    (TypeError, lambda: fluid.gradients(3, one())),
    (TypeError, lambda: fluid.gradients(one(), 3)),
    (TypeError, lambda: fluid.gradients(one(), [one()], target_gradients=3)),
    (TypeError, lambda: in_recurrence(lambda rnn, step: rnn.static_input(3))),
    (TypeError, lambda: in_recurrence(lambda rnn, step: rnn.memory(init=3))),
    (TypeError, lambda: in_recurrence(lambda rnn, step: rnn.memory(shape="a", dtype="float32"))),
    (TypeError, lambda: in_recurrence(lambda rnn, step: rnn.update_memory(3, rnn.memory(shape=[3])))),
    (TypeError, lambda: in_recurrence(lambda rnn, step: rnn.update_memory(rnn.memory(shape=[3]), 3))),
    (ValueError, lambda: layers.DynamicRNN()()),
    (TypeError, lambda: layers.is_empty(one(), one())),
    (TypeError, lambda: attention("float32", "float32", "float64")),
    (TypeError, lambda: attention("float32", "float64", "float32")),
    (TypeError, lambda: attention("int32", "int32", "int32")),
    (TypeError, lambda: dygraph.NCE(4, 2)(ARRAY, data("int64"))),
    (TypeError, lambda: dygraph.NCE(4, 2)(data("float16"), one("int64"))),
    (TypeError, lambda: dygraph.NCE(4, 2)(data("float32"), one("int32"))),
    (TypeError, lambda: dygraph.NCE(4, 2)(data("float32"), one("int64"), ARRAY)),
    (TypeError, lambda: dygraph.BilinearTensorProduct(2, 2, 2)(data("float32"), ARRAY)),
    (TypeError, lambda: dygraph.BilinearTensorProduct(2, 2, 2)(data("int32"), one())),
    (TypeError, lambda: dygraph.TreeConv(2, 2)(ARRAY, one("int32"))),
    (TypeError, lambda: dygraph.TreeConv(2, 2)(data("float32"), ARRAY)),
]


@pytest.mark.parametrize(("error", "build"), REFUSED)
def test_wrong_arguments_are_refused(error: type[Exception], build: Callable[[], Any]) -> None:
    with pytest.raises(error) as raised:
        build()
    assert issubclass(raised.type, error) and raised.type.__module__ != "lowering.errors"
