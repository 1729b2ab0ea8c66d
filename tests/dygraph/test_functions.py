"""fluid.layers under a guard, random numbers, and bad use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.base.mode import tracer_guard
from fluidjax.core import EnforceNotMet
from fluidjax.eager.kernels import _kernels

dg, layers = fluid.dygraph, fluid.layers


@pytest.fixture(autouse=True)
def under_guard() -> Iterator[None]:
    """Each test has a guard of its own."""
    with dg.guard():
        yield


def var(values: Any, dtype: str = "float32") -> Any:
    return dg.to_variable(np.array(values, dtype))


def x23() -> Any:
    return var(np.arange(6).reshape(2, 3))


def numbers(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [numbers(v) for v in value]
    return np.round(value.numpy(), 4).tolist()


def zero() -> Any:
    return layers.zeros([1], "int64")


RESULTS: dict[str, tuple[Callable[[], Any], Any]] = {
    "topk": (lambda: layers.topk(x23(), 2), [[[2, 1], [5, 4]], [[2, 1], [2, 1]]]),
    "split": (lambda: layers.split(x23(), 3, 1), [[[0], [3]], [[1], [4]], [[2], [5]]]),
    "split into one": (lambda: layers.split(x23(), 1, 1), [[[0, 1, 2], [3, 4, 5]]]),
    "unstack": (lambda: layers.unstack(x23(), 0), [[0, 1, 2], [3, 4, 5]]),
    "concat of the rows of one": (lambda: layers.concat(x23()), [0, 1, 2, 3, 4, 5]),
    "concat of the items of one": (lambda: layers.concat(layers.unsqueeze(x23(), [2]), 1), [[0, 3], [1, 4], [2, 5]]),
    "reverse of a mask": (lambda: layers.reverse(x23() > 3.0, 1).astype("int32"), [[0, 0, 0], [1, 1, 0]]),
    "crop": (lambda: layers.crop(var([[1, 2], [3, 4]], "float64"), [1, 2]), [[1, 2]]),
    "rank of an array": (lambda: layers.rank(np.ones((2, 3))), 2),
    "unique": (lambda: layers.unique(var([2, 3, 2], "int64")), [[2, 3], [0, 1, 0]]),
    "where": (lambda: layers.where(x23() > 3.0), [[1, 1], [1, 2]]),
    "shape": (lambda: layers.shape(x23()), [2, 3]),
    "accuracy": (lambda: layers.accuracy(x23(), var([[2], [0]], "int64")), [0.5]),
    "cond": (lambda: layers.cond(x23()[0, 1] > 0.0, lambda: x23() * 2.0, lambda: x23())[0], [0, 2, 4]),
    "else": (lambda: layers.cond(x23()[0, 1] > 9.0, lambda: x23() * 2.0, lambda: x23())[0], [0, 1, 2]),
    "while_loop": (lambda: layers.while_loop(lambda a: a < 3.0, lambda a: [a + 1.0], [var([0.0])]), [[3]]),
    "case": (lambda: layers.case([(var([1.0]) > 3.0, lambda: var([1.0]))], lambda: var([2.0])), [2]),
    "switch_case": (lambda: layers.switch_case(var([1], "int64"), {0: lambda: var([7.0]), 1: lambda: var([8.0])}), [8]),
    "array_write": (lambda: layers.array_write(var([1.0]), zero()), [[1]]),
    "array_read": (lambda: layers.array_read([var([1.0]), var([2.0])], zero() + 1), [2]),
    "tensor_array_to_tensor": (lambda: layers.tensor_array_to_tensor([x23(), x23()], axis=0)[1], [2, 2]),
    "sizes of what is stacked": (lambda: layers.tensor_array_to_tensor([x23(), x23()], 1, use_stack=True)[1], [3, 3]),
    "sizes along a new axis": (lambda: layers.tensor_array_to_tensor([x23(), x23()], 2, use_stack=True)[1], [1, 1]),
    "reshape": (lambda: layers.reshape(x23(), [3, -1], inplace=True), [[0, 1], [2, 3], [4, 5]]),
    "one_hot": (lambda: fluid.one_hot(var([1, 0], "int64"), 2), [[0, 1], [1, 0]]),
    "slice of variables": (lambda: layers.slice(x23(), [0], [var([0], "int32")], [var([1], "int32")]), [[0, 1, 2]]),
    "strides of int64": (lambda: layers.strided_slice(x23(), [1], [zero()], [3], [zero() + 2]), [[0, 2], [3, 5]]),
    "increment": (lambda: layers.increment(var([1.0]), 2.0), [3]),
}


@pytest.mark.parametrize("name", RESULTS)
def test_layers_give_what_the_static_ones_give(name: str) -> None:
    function, expected = RESULTS[name]
    assert numbers(function()) == expected


def test_an_op_that_needs_numbers_is_traced_in_vain_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(stop: int) -> Any:
        return numbers(layers.range(0, stop, 1, "int64"))

    assert run(2) == [0, 1]
    kernels = [kernel for key, kernel in _kernels.items() if key[0] == "range"]
    for kernel in kernels:
        monkeypatch.setitem(kernel.__dict__, "jitted", None)
    assert kernels
    assert (run(2), run(5)) == ([0, 1], [0, 1, 2, 3, 4])


def test_a_place_may_be_set_for_some_layers() -> None:
    framework = fluid.framework
    before, other = framework._current_expected_place(), fluid.CPUPlace()
    with pytest.raises(KeyError), framework._dygraph_place_guard(other):
        assert framework._current_expected_place() is other
        raise KeyError
    assert framework._current_expected_place() is before
    with tracer_guard(None), framework._dygraph_place_guard(other):
        assert framework._current_expected_place() is None


def test_arrays_are_lists() -> None:
    array = layers.create_array("float32")
    array = layers.array_write(var([1.0]), zero(), array)
    array = layers.array_write(var([2.0]), zero() + 1, array)
    assert isinstance(array, list)
    assert layers.array_length(array) == 2
    with pytest.raises(AssertionError):
        layers.array_write(var([1.0]), zero() + 5, array)


def test_increment_and_assign_write_in_place() -> None:
    counter = var([1.0])
    assert layers.increment(counter) is counter
    assert numbers(counter) == [2]
    p = dg.Linear(2, 1).weight
    layers.assign(np.full([2, 1], 3.0, "float32"), output=p)
    assert numbers(p) == [[3], [3]]


def test_reshape_leaves_its_input_as_it_is() -> None:
    x = x23()
    assert layers.reshape(x, [3, 2], inplace=True) is not x
    assert x.shape == [2, 3]


@pytest.mark.parametrize("shape", [[-1], [1, -1], [-1, 1], [1]])
def test_a_scalar_is_reshaped(shape: list[int]) -> None:
    x = var([3.0])
    x.stop_gradient = False
    scalar = layers.squeeze(x, [])
    y = layers.reshape(scalar * 2.0, shape)
    assert (scalar.shape, y.shape) == ([], [1] * len(shape))
    y.backward()
    assert x.gradient().tolist() == [2.0]


def test_layers_with_parameters_make_new_ones_at_each_call() -> None:
    x = x23()
    one, two = layers.fc(x, 4), layers.fc(x, 4)
    assert one.shape == two.shape == [2, 4]
    assert not np.allclose(one.numpy(), two.numpy())


def test_data_has_no_value() -> None:
    with pytest.raises(EnforceNotMet, match="no value"):
        fluid.data("x", [2, 3]).numpy()


def test_global_variables_and_created_tensors() -> None:
    rate = layers.create_global_var([1], 0.5, "float32", persistable=True)
    assert (numbers(rate), rate.persistable, rate.stop_gradient) == ([0.5], True, True)
    p = layers.create_parameter([2, 2], "float32")
    assert (p.shape, p.stop_gradient, p.persistable) == ([2, 2], False, True)


REFUSED: dict[str, tuple[type[Exception], Callable[[], Any]]] = {
    "Print": (EnforceNotMet, lambda: layers.Print(x23())),
    "py_func": (EnforceNotMet, lambda: layers.py_func(lambda a: a, x23(), x23())),
    "sequence_pool": (AssertionError, lambda: layers.sequence_pool(x23(), "sum")),
    "im2sequence": (AssertionError, lambda: layers.im2sequence(var(np.ones([1, 1, 4, 4])))),
    "dynamic_lstm": (AssertionError, lambda: layers.dynamic_lstm(x23(), 8)),
    "array": (TypeError, lambda: layers.softmax(np.ones([2, 2], "float32"))),
    "int relu": (EnforceNotMet, lambda: layers.relu(var([1], "int64"))),
    "int32 ids": (EnforceNotMet, lambda: dg.Embedding([5, 2])(var([1], "int32"))),
    "ids out of range": (EnforceNotMet, lambda: dg.Embedding([5, 2])(var([7], "int64"))),
    "width": (EnforceNotMet, lambda: dg.Linear(3, 2)(var(np.zeros([2, 4])))),
    "array to a layer": (TypeError, lambda: dg.Linear(3, 2)(np.zeros([2, 3], "float32"))),
    "a list to assign": (TypeError, lambda: layers.assign([1, 2])),  # type: ignore[arg-type]
    "py_reader": (EnforceNotMet, lambda: layers.py_reader(4, [[-1, 2]], ["float32"])),
    "create_py_reader_by_data": (EnforceNotMet, lambda: layers.create_py_reader_by_data(4, [x23()])),
    "double_buffer": (EnforceNotMet, lambda: layers.double_buffer(x23())),
    "log_loss of two columns": (EnforceNotMet, lambda: layers.log_loss(x23(), x23())),
    "rank_loss of two columns": (EnforceNotMet, lambda: layers.rank_loss(*[var(np.ones([3, 2]))] * 3)),
    "diag of a matrix": (EnforceNotMet, lambda: layers.diag(x23())),  # an op that takes host values
    "set_gradient_clip": (AssertionError, lambda: fluid.clip.set_gradient_clip(fluid.clip.GradientClipByValue(1.0))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_mode_refuses(name: str) -> None:
    error, function = REFUSED[name]
    with pytest.raises(error):
        function()
    assert numbers(var([1.0]) + 1.0) == [2]  # and goes on


# Random numbers.


def test_seeds_of_the_programs_repeat_initial_weights() -> None:
    def weights(seed: int) -> list[np.ndarray]:
        with dg.guard():
            fluid.default_startup_program().random_seed = seed
            fluid.default_main_program().random_seed = seed
            return [dg.Linear(3, 2).weight.numpy() for _ in range(2)]

    one, two = weights(7)
    again, _ = weights(7)
    other, _ = weights(8)
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    free, also = weights(0)
    assert not np.array_equal(free, also)


SEEDED: dict[str, Callable[[Any], Any]] = {
    "linear": lambda x: dg.Linear(3, 40)(x),
    "normal": lambda x: dg.Linear(3, 4, param_attr=fluid.ParamAttr(initializer=fluid.initializer.Normal()))(x),
    "truncated": lambda x: dg.Linear(3, 4, param_attr=fluid.ParamAttr(initializer=fluid.initializer.TruncatedNormal()))(
        x
    ),
    "dropout": lambda x: layers.dropout(layers.dropout(x, 0.5), 0.5),
    "seeded ops": lambda x: layers.concat([layers.uniform_random([2], seed=4), layers.gaussian_random([2], seed=4)]),
    "integers": lambda x: layers.randint(0, 100, [5], seed=4) + layers.randperm(5, seed=4),
}


@pytest.mark.parametrize("name", SEEDED)
def test_equal_seeds_begin_eager_nets_as_static_ones(name: str) -> None:
    """Fluid's own tests of eager mode compare the two."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 90
    x = np.arange(6, dtype="float32").reshape(2, 3)
    with tracer_guard(None), fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        y = SEEDED[name](fluid.data("x", [2, 3]))
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        static = exe.run(main, feed={"x": x}, fetch_list=[y])[0]
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 90
    np.testing.assert_array_equal(static, SEEDED[name](var(x)).numpy())


def test_dropout_repeats_its_mask_with_a_seed_alone() -> None:
    x = var(np.ones([4, 64]))
    first, second = layers.dropout(x, 0.5).numpy(), layers.dropout(x, 0.5).numpy()
    assert not np.array_equal(first, second)
    fluid.default_main_program().random_seed = 3
    np.testing.assert_array_equal(layers.dropout(x, 0.5).numpy(), layers.dropout(x, 0.5).numpy())
    layer = dg.Dropout(0.5)
    np.testing.assert_array_equal(layer(x).numpy(), layer(x).numpy())


@pytest.mark.parametrize("draw", [layers.uniform_random, layers.gaussian_random])
def test_draws_differ_unless_they_have_a_seed(draw: Callable[..., Any]) -> None:
    assert not np.array_equal(draw([8]).numpy(), draw([8]).numpy())
    np.testing.assert_array_equal(draw([8], seed=5).numpy(), draw([8], seed=5).numpy())


def test_dropped_elements_get_no_gradient() -> None:
    x = var(np.ones([4, 64]))
    x.stop_gradient = False
    y = layers.dropout(x, 0.5)
    y.backward()
    np.testing.assert_array_equal(x.gradient(), y.numpy())


# Bad use says what to do.


def three_parts(error: BaseException) -> None:
    text = str(error)
    assert "expected" in text.lower()
    assert len(text.splitlines()) > 2 or text.count(". ") >= 2


def test_an_op_outside_a_guard() -> None:
    x = var([1.0])
    with fluid.framework._dygraph_guard(None):
        with pytest.raises(EnforceNotMet, match="guard") as caught:
            x + 1.0
        three_parts(caught.value)
        with pytest.raises(Exception, match="guard"):
            layers.relu(x)
        with pytest.raises(AssertionError, match="guard"):
            dg.to_variable(np.ones(1))
        assert numbers(x) == [1]


def test_static_variables_and_eager_ones_do_not_mix() -> None:
    with fluid.framework._dygraph_guard(None), fluid.program_guard(fluid.Program()):
        static = fluid.data("x", [2, 3], "float32")
        with pytest.raises(Exception, match="guard"):
            layers.elementwise_add(static, x23_outside)
    for function in (lambda: layers.relu(static), lambda: x23() + static):
        with pytest.raises((TypeError, EnforceNotMet)) as caught:
            function()
        three_parts(caught.value)


with dg.guard():
    x23_outside = x23()


def test_mixed_dtypes_name_both() -> None:
    with pytest.raises(TypeError, match=r"FP32.*INT64") as caught:
        var([1.0]) + var([1], "int64")
    three_parts(caught.value)


def test_a_wrong_state_dict_is_refused() -> None:
    net = dg.Linear(2, 2)
    opt = fluid.optimizer.Adam(0.1, parameter_list=net.parameters())
    loss = layers.reduce_sum(net(var([[1.0, 2.0]])))
    loss.backward()
    opt.minimize(loss)
    state = opt.state_dict()
    with pytest.raises(AssertionError, match="moment1"):
        opt.set_dict({})
    with pytest.raises(AssertionError, match="should in state dict") as caught:
        other = fluid.optimizer.Adam(0.1, parameter_list=net.parameters())
        other.set_dict(state)
        other.minimize(loss)
    three_parts(caught.value)


def test_an_exception_in_a_step_leaves_everything_usable() -> None:
    net = dg.Linear(2, 2)
    net.weight.set_value(np.ones([2, 2], "float32"))  # a drawn one may be all but cancelled by the update
    opt = fluid.optimizer.SGD(0.1, parameter_list=net.parameters())
    before = net.weight.numpy()
    breaks: list[Callable[[Any], Any]] = [
        lambda y: layers.matmul(y, var(np.ones([5, 5]))),
        lambda y: 1 / 0,
        lambda y: dg.Embedding([3, 2])(y),
    ]
    for wrong in breaks:
        with pytest.raises((EnforceNotMet, ZeroDivisionError)):
            wrong(net(var([[1.0, 2.0]])))
    assert fluid.in_dygraph_mode()
    np.testing.assert_array_equal(net.weight.numpy(), before)
    loss = layers.reduce_sum(net(var([[1.0, 2.0]])))
    loss.backward()
    opt.minimize(loss)
    np.testing.assert_allclose(net.weight.numpy(), before - np.array([[0.1, 0.1], [0.2, 0.2]]), rtol=1e-5)


def test_computed_ids_out_of_range_are_told_where_they_are_looked_at() -> None:
    table = dg.Embedding([3, 2])
    ids = layers.argmax(var([[0.0, 0.0, 0.0, 0.0, 1.0]]), axis=1)
    out = table(ids)
    with pytest.raises(EnforceNotMet, match=r"test_functions.py:\d+\) cannot take the value 4") as caught:
        out.numpy()
    three_parts(caught.value)
    assert numbers(table(ids * 0)).__len__() == 1
    assert numbers(var([6], "int64") / 2) == [3]
    with pytest.raises(EnforceNotMet, match="divisor"):
        var([6], "int64") / var([0], "int64")


def test_enable_and_disable() -> None:
    with fluid.framework._dygraph_guard(None):
        fluid.enable_dygraph()
        fluid.enable_dygraph()
        try:
            assert dg.enabled()
            assert fluid.in_dygraph_mode()
            assert var([1.0]).name == "generated_var_0"
        finally:
            fluid.disable_dygraph()
        assert not dg.enabled()
        fluid.disable_dygraph()


def test_results_that_a_layer_stops_gradients_at_are_stopped() -> None:
    x = var(np.ones([1, 2, 4, 4]))
    x.stop_gradient = False
    anchors, spread = layers.anchor_generator(x, anchor_sizes=[64.0], aspect_ratios=[1.0], stride=[16.0, 16.0])
    assert (anchors.stop_gradient, spread.stop_gradient) == (True, True)
    for _ in range(2):  # the second is the op that came next last time
        priors, spread = layers.prior_box(x, layers.expand(x, [1, 1, 2, 2]), min_sizes=[2.0])
        assert (priors.stop_gradient, spread.stop_gradient) == (True, True)
    scores = layers.softmax(layers.reshape(x, [1, 4, 8]))
    found = layers.multiclass_nms(layers.reshape(x, [1, 8, 4]), scores, 0.01, 3, 3)
    assert found.stop_gradient is True
    ordered, places = layers.argsort(x)
    assert (ordered.stop_gradient, places.stop_gradient) == (False, False)


def test_smoothed_labels_have_gradients() -> None:
    x = var([[0.0, 1.0]])
    x.stop_gradient = False
    layers.reduce_sum(layers.label_smooth(x, epsilon=0.25)).backward()
    assert x.stop_gradient is False
    assert x.gradient().tolist() == [[0.75, 0.75]]


def test_scale_applies_its_activation() -> None:
    assert numbers(layers.scale(var([-1.0, 2.0]), 3.0, act="relu")) == [0, 6]


def test_the_counts_of_an_accuracy_are_named_before_it() -> None:
    first = int(var([1.0]).name.rsplit("_", 1)[1])
    fraction = layers.accuracy(var([[0.2, 0.8]]), var([[1]], "int64"))
    assert fraction.name == f"tmp_{first + 7}"  # after two variables, two counts, the largest and their places
    assert (var([[1.0]]) + 1).name == f"tmp_{first + 9}"


@pytest.mark.parametrize("bias", [False, True])
def test_a_linear_without_bias_names_its_result_as_to_variable_does(bias: bool) -> None:
    net = dg.Linear(3, 2, bias_attr=None if bias else False)
    kind, number = net(x23()).name.rsplit("_", 1)
    assert kind == ("tmp" if bias else "generated_var")
    assert (x23() + 1).name == f"tmp_{int(number) + 2}"


def test_a_product_is_named_as_to_variable_names() -> None:
    class Product(dg.Layer):
        def forward(self, x: Any) -> Any:
            return layers.matmul(layers.relu(x), x, transpose_y=True)

    layer, x = Product(), x23()
    first = int(x.name.rsplit("_", 1)[1])
    for call in range(5):  # the last ones are repeated without their Python
        assert layer(x).name == f"generated_var_{first + 2 + 2 * call}"
    assert (x + x).name == f"tmp_{first + 11}"


def test_states_that_hold_nothing_yet_are_begun() -> None:
    x = var(np.arange(16).reshape(4, 4))
    assert layers.random_crop(x, [2, 2], seed=3).shape == [2, 2]
    rows = fluid.contrib.layers.shuffle_batch(x, seed=3)
    assert sorted(rows.numpy()[:, 0]) == [0.0, 4.0, 8.0, 12.0]


def test_sign_takes_an_array() -> None:
    assert numbers(layers.sign(np.array([3.0, 0.0, -2.0], "float32"))) == [1.0, 0.0, -1.0]


def test_pipelines_belong_to_static_programs() -> None:
    with pytest.raises(Exception, match="don't support PipelineOptimizer"):
        fluid.optimizer.PipelineOptimizer(None)


def test_the_base_of_layers_computes_nothing() -> None:
    assert fluid.core.Layer().forward([x23()]) == []


@pytest.mark.parametrize("perm", [(1, 0), np.array([1, 0])], ids=["tuple", "array"])
def test_the_kind_of_an_attribute_is_not_checked(perm: Any) -> None:
    """As in Fluid, where only a program that is written asks for a list."""
    turned = layers.transpose(x23(), perm)
    np.testing.assert_array_equal(turned.numpy(), x23().numpy().T)
    with pytest.raises(TypeError, match="'x' in has_nan"):
        layers.has_nan((1, 2))


WRONG_SIZES: dict[str, Callable[[Any], Any]] = {
    "two unknown sizes": lambda x: layers.reshape(x, [-1, -1]),
    "a 0 beyond the rank": lambda x: layers.reshape(x, [0, 0, 0]),
    "a negative size": lambda x: layers.reshape(x, [-2, 3]),
    "no sizes": lambda x: layers.reshape(x, []),
    "no times": lambda x: layers.expand(x, [0, 1]),
    "uneven sections": lambda x: layers.split(x, 2, dim=1),
    "no sections": lambda x: layers.split(x, 0),
    "nothing to draw": lambda x: layers.uniform_random([]),
}


@pytest.mark.parametrize("name", WRONG_SIZES)
def test_sizes_are_refused_by_the_errors_of_both_modes(name: str) -> None:
    x = dg.to_variable(np.ones([2, 3], "float32"))
    for kind in (fluid.core.EnforceNotMet, AssertionError):  # of Fluid's op in eager mode, of its layer in a program
        with pytest.raises(kind):
            WRONG_SIZES[name](x)
