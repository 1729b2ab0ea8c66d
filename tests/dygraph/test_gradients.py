"""What backward does, fact by fact as Paddle 1.8.5 does it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid

dg, layers = fluid.dygraph, fluid.layers


@pytest.fixture(autouse=True, params=[0, 1], ids=["op by op", "pending"])
def under_guard(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test runs op by op, and with pending ops."""
    fluid.set_flags({"FLAGS_eager_blocks": request.param})
    try:
        with dg.guard():
            yield
    finally:
        fluid.set_flags({"FLAGS_eager_blocks": 1})


def leaf(values: Any, dtype: str = "float32") -> Any:
    var = dg.to_variable(np.array(values, dtype))
    var.stop_gradient = False
    return var


def const(values: Any, dtype: str = "float32") -> Any:
    return dg.to_variable(np.array(values, dtype))


def same(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, np.array(expected, "float32"), rtol=1e-6)


def test_a_second_backward_replaces_gradients() -> None:
    x = leaf([1.0, 2.0])
    (x * x * 0.0 + x * const([0.0, 2.0])).backward()
    same(x.gradient(), [0, 2])
    (x * 3.0).backward()
    same(x.gradient(), [3, 3])


def test_uses_within_one_backward_are_summed() -> None:
    x = leaf([1.0, 2.0])
    layers.reduce_sum(x * x + x * 3.0 + x).backward()
    same(x.gradient(), [6, 8])


def test_backward_starts_from_ones() -> None:
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    y = x * 2.0
    y.backward()
    same(y.gradient(), np.ones([2, 2]))
    same(x.gradient(), np.full([2, 2], 2.0))


def test_there_is_no_gradient_before_backward_nor_of_unused_parameters() -> None:
    used, unused = dg.Linear(2, 2), dg.Linear(2, 2)
    assert used.weight.gradient() is None
    layers.reduce_sum(used(const([[1.0, 2.0]]))).backward()
    assert used.weight.gradient() is not None
    assert unused.weight.gradient() is None


def test_a_gradient_is_a_copy() -> None:
    x = leaf([1.0, 2.0])
    (x * 2.0).backward()
    x.gradient()[:] = 7
    same(x.gradient(), [2, 2])


def test_clearing_makes_zeros() -> None:
    x = leaf([1.0, 2.0])
    x.clear_gradient()
    assert x.gradient() is None
    (x * 2.0).backward()
    x.clear_gradient()
    same(x.gradient(), [0, 0])


def test_sparse_gradients_are_pairs_and_go_when_cleared() -> None:
    table = dg.Embedding([5, 2], is_sparse=True)
    layers.reduce_sum(table(const([3, 1, 3], "int64"))).backward()
    values, rows = table.weight.gradient()
    assert isinstance(rows, np.ndarray) and rows.dtype == np.int64 and sorted(rows) == [1, 3, 3]
    same(values, np.ones([3, 2]))
    opt = fluid.optimizer.SGD(0.1, parameter_list=table.parameters())
    table.clear_gradients()
    assert table.weight.gradient() is None
    assert opt.minimize(layers.reduce_sum(table(const([0], "int64")))) == ([], [])


def test_a_sum_of_sparse_gradients_holds_each_row_once() -> None:
    table = dg.Embedding([6, 2], is_sparse=True)
    loss = layers.reduce_sum(table(const([4, 1, 4], "int64"))) + layers.reduce_sum(table(const([2], "int64")) * 3.0)
    loss.backward()
    values, rows = table.weight.gradient()
    assert rows.tolist() == [1, 2, 4]
    same(values, [[1, 1], [3, 3], [2, 2]])


def test_sparse_gradients_update_their_rows_alone() -> None:
    table = dg.Embedding([5, 2], is_sparse=True)
    before = table.weight.numpy()
    opt = fluid.optimizer.SGD(0.5, parameter_list=table.parameters())
    loss = layers.reduce_sum(table(const([3, 1, 3], "int64")))
    loss.backward()
    opt.minimize(loss)
    change = table.weight.numpy() - before
    same(change, np.array([[0, 0], [-0.5, -0.5], [0, 0], [-1, -1], [0, 0]]))


def test_intermediate_gradients_stay() -> None:
    x = leaf([1.0, 2.0])
    h = x * 2.0
    y = layers.reduce_sum(h * h)
    y.backward()
    same(h.gradient(), [4, 8])
    same(y.gradient(), [1])


def test_no_grad_keeps_the_signature_of_what_it_decorates() -> None:
    def double(a: int, b: int = 1) -> int:
        return a + b

    assert inspect.getfullargspec(dg.no_grad(double)) == inspect.getfullargspec(double)
    assert dg.no_grad(double)(1, b=3) == 4


def test_backward_works_under_no_grad_for_what_was_recorded() -> None:
    x = leaf([1.0, 2.0])
    y = x * 2.0
    with dg.no_grad():
        y.backward()
    same(x.gradient(), [2, 2])


def test_a_used_graph_is_gone() -> None:
    x = leaf([1.0, 2.0])
    h = x * x
    a, b = h * 2.0, h * 3.0
    a.backward()
    with pytest.raises(fluid.core.EnforceNotMet, match="retain_graph=True"):
        b.backward()
    x = leaf([1.0, 2.0])
    (x * x).backward()  # and what failed does not stand in the way
    same(x.gradient(), [2, 4])


def test_a_retained_graph_stays() -> None:
    x = leaf([1.0, 2.0])
    h = x * x
    a, b = h * 2.0, h * 3.0
    a.backward(retain_graph=True)
    same(x.gradient(), [4, 8])
    b.backward()
    same(x.gradient(), [6, 12])


@pytest.mark.parametrize("way", ["within", "beside", "grad", "stopped"])
def test_a_root_within_a_used_graph_is_refused(way: str) -> None:
    x = leaf([1.0, 2.0])
    if way == "beside":
        first, root = layers.split(x * 2.0, 2, dim=0)
    else:
        root = x * 2.0
        first = layers.reduce_sum(root)
    if way == "grad":
        dg.grad(root, x)
    else:
        first.backward()
    root.stop_gradient = way == "stopped"
    before = x.gradient()
    with pytest.raises(fluid.core.EnforceNotMet, match="retain_graph=True"):
        root.backward()
    np.testing.assert_array_equal(x.gradient(), before)


def test_the_variable_of_a_gradient_is_stopped_with_its_variable() -> None:
    x = leaf([1.0, 1.0])
    (x * 2.0).backward()
    held = x._grad_ivar()
    for stop in (True, False):
        x.stop_gradient = stop
        assert held.stop_gradient is stop
    y = leaf([1.0, 1.0])
    (y * 2.0).backward()
    y.stop_gradient = True
    assert y._grad_ivar().stop_gradient


def test_a_retained_graph_leads_through_the_root_too() -> None:
    x = leaf([1.0, 2.0])
    y = x * x
    y.backward(retain_graph=True)
    x.clear_gradient()
    y.backward(retain_graph=True)  # nothing in 1.8.5
    same(x.gradient(), [2, 4])
    (y * 3.0).backward()  # ends at y in 1.8.5
    same(x.gradient(), [6, 12])


def test_the_same_root_twice_is_silent() -> None:
    x = leaf([1.0, 2.0])
    y = x * x
    y.backward()
    y.backward()
    same(x.gradient(), [2, 4])


def test_backward_of_what_no_op_made_changes_nothing() -> None:
    x = leaf([1.0, 2.0])
    x.backward()
    assert x.gradient() is None
    (x * 2.0).backward()
    x.backward()
    same(x.gradient(), [2, 2])


def test_what_follows_from_a_used_root_begins_there() -> None:
    x = leaf([1, 1])
    y = x * 3.0
    y.backward()
    layers.reduce_sum(y * 5.0).backward()
    assert (x.gradient().tolist(), y.gradient().tolist()) == ([3, 3], [5, 5])


def test_backward_where_nothing_needs_a_gradient_is_silent() -> None:
    y = layers.reduce_sum(const([1.0]) * 2.0)
    y.backward()
    assert y.gradient() is None
    assert y.stop_gradient


@pytest.mark.parametrize("sort", [False, True])
def test_a_strategy_changes_no_number(sort: bool) -> None:
    strategy = dg.BackwardStrategy()
    assert strategy.sort_sum_gradient is False
    strategy.sort_sum_gradient = sort
    x = leaf([1.0, 2.0])
    layers.reduce_sum(x * x + x * 3.0 + x).backward(strategy)
    same(x.gradient(), [6, 8])


def test_a_misspelt_setting_of_a_strategy_is_an_error() -> None:
    with pytest.raises(AttributeError, match="sort_sum_gradients"):
        dg.BackwardStrategy().sort_sum_gradients = True


def test_backward_takes_nothing_but_a_strategy() -> None:
    with pytest.raises(TypeError, match="BackwardStrategy"):
        leaf([1.0]).backward(1)


def test_a_gradient_is_a_variable_too() -> None:
    net = dg.Linear(2, 1)
    layers.reduce_sum(net(const([[1.0, 2.0]]))).backward()
    grad = net.weight._grad_ivar()
    assert (grad.name, grad.stop_gradient) == ("linear_0.w_0@GRAD", False)
    grad.set_value(np.full([2, 1], 9.0, "float32"))
    same(net.weight.gradient(), [[9], [9]])


def test_the_variable_of_a_gradient_stays_the_same_through_all_that_changes_it() -> None:
    x = leaf([1.0, 1.0])
    (x * 2.0).backward()
    held = x._grad_ivar()
    (x * 3.0).backward()
    assert x._grad_ivar() is held
    same(held.numpy(), [3, 3])
    x.clear_gradient()
    same(held.numpy(), [0, 0])
    (x * 5.0).backward()
    same(held.numpy(), [5, 5])
    held.set_value(np.array([7, 7], "float32"))
    same(x.gradient(), [7, 7])


def test_what_minimize_returned_has_the_gradients_of_later_steps() -> None:
    fc = dg.Linear(2, 1)
    opt = fluid.optimizer.SGD(0.1, parameter_list=fc.parameters())
    kept = []
    for k in range(6):  # the last steps are known ones
        loss = fc(const([[k, 2.0 * k]]))
        loss.backward()
        kept.append(opt.minimize(loss)[1])
        for pairs in kept:
            same(pairs[0][1].numpy(), [[k], [2 * k]])
        fc.clear_gradients()
        same(kept[0][0][1].numpy(), [[0], [0]])


def test_the_variable_of_a_sparse_gradient_comes_back_after_clearing() -> None:
    table = dg.Embedding([4, 2], is_sparse=True)
    layers.reduce_sum(table(const([1, 2], "int64"))).backward()
    held = table.weight._grad_ivar()
    table.weight.clear_gradient()
    assert table.weight._grad_ivar() is None
    assert held.type == fluid.core.VarDesc.VarType.SELECTED_ROWS
    assert table.weight.gradient() is None
    layers.reduce_sum(table(const([3], "int64"))).backward()
    assert table.weight._grad_ivar() is held
    assert table.weight.gradient()[1].tolist() == [3]


def test_a_value_set_between_forward_and_backward_counts() -> None:
    net = dg.Linear(2, 2, bias_attr=False)
    x = leaf([[1.0, 2.0]])
    y = layers.reduce_sum(net(x))
    net.weight.set_value(np.full([2, 2], 5.0, "float32"))
    y.backward()
    same(x.gradient(), [[10, 10]])


def test_no_gradient_flows_through_topk() -> None:
    x = leaf([3.0, 1.0, 2.0])
    values, indices = layers.topk(x, 2)
    assert values.stop_gradient
    assert indices.stop_gradient
    values, _ = layers.argsort(x)
    layers.reduce_sum(values * const([1.0, 2.0, 3.0])).backward()
    same(x.gradient(), [3, 1, 2])


def test_unused_outputs_count_as_zeros() -> None:
    x = leaf([[1.0, 2.0, 3.0, 4.0]])
    first, _ = layers.split(x, 2, dim=1)
    layers.reduce_sum(first * 2.0).backward()
    same(x.gradient(), [[2, 2, 0, 0]])


# stop_gradient

FLAGS: dict[str, tuple[Callable[[], Any], bool]] = {
    "to_variable": (lambda: const([1.0]), True),
    "parameter": (lambda: dg.Linear(1, 1).weight, False),
    "fill_constant": (lambda: layers.fill_constant([1], "float32", 1.0), True),
    "zeros": (lambda: layers.zeros([1], "float32"), True),
    "uniform_random": (lambda: layers.uniform_random([1]), True),
    "gaussian_random": (lambda: layers.gaussian_random([1]), True),
    "create_global_var": (lambda: layers.create_global_var([1], 1.0, "float32"), True),
    "of a constant": (lambda: const([1.0]) * 2.0, True),
    "of a leaf": (lambda: leaf([1.0]) * 2.0, False),
    "comparison": (lambda: leaf([1.0]) > 0.0, False),
    "cast to int": (lambda: layers.cast(leaf([1.0]), "int64"), False),
    "argmax": (lambda: layers.argmax(leaf([1.0])), True),
    "detached": (lambda: (leaf([1.0]) * 2.0).detach(), True),
    "not trainable": (lambda: dg.Linear(1, 1, param_attr=fluid.ParamAttr(trainable=False)).weight, False),
}


@pytest.mark.parametrize("name", FLAGS)
def test_stop_gradient_is_as_in_fluid(name: str) -> None:
    make, expected = FLAGS[name]
    assert make().stop_gradient is expected


def test_setting_stop_gradient_cuts_and_opens() -> None:
    x = leaf([1.0, 2.0])
    h = x * 2.0
    h.stop_gradient = True
    layers.reduce_sum(h * x).backward()
    same(x.gradient(), [2, 4])
    assert h.gradient() is None
    x = const([1.0, 2.0])
    h = x * 2.0
    h.stop_gradient = False
    layers.reduce_sum(h * 3.0).backward()
    same(h.gradient(), [3, 3])
    assert x.gradient() is None


STOPPED: dict[str, tuple[Callable[[Any, Any, Any], Any], list[Any]]] = {
    "root": (lambda x, h, y: y, [[0, 0], [0, 0], [0, 0]]),
    "intermediate": (lambda x, h, y: h, [[0, 0], [0, 0], [1, 1]]),
    "leaf": (lambda x, h, y: x, [[0, 0], [6, 18], [1, 1]]),
}


@pytest.mark.parametrize("which", STOPPED)
@pytest.mark.parametrize("steps", [1, 8])
def test_a_variable_stopped_after_its_use_blocks_by_zeros(which: str, steps: int) -> None:
    stopped, expected = STOPPED[which]
    for k in range(steps):
        x = leaf([1, 3])
        h = x * 3
        y = h * h
        for flag in (True, False) if k % 2 else (True,):  # every second step it is opened again
            stopped(x, h, y).stop_gradient = flag
        y.backward()
        found = [v.gradient() for v in (x, h, y)]
        same(found, [[18, 54], [6, 18], [1, 1]] if k % 2 else expected)


def test_a_parameter_stopped_after_its_use_keeps_its_gradient_or_gets_zeros() -> None:
    p, q = leaf([1, 3]), leaf([1, 3])
    (p * 2).backward()
    y = p * q
    p.stop_gradient = q.stop_gradient = True
    y.backward()
    same([p.gradient(), q.gradient()], [[2, 2], [0, 0]])


def test_grad_passes_variables_that_were_stopped_after_their_use() -> None:
    x = leaf([1, 3])
    h = x * 3
    y = h * 2
    h.stop_gradient = True
    same(dg.grad([y], [x])[0].numpy(), [6, 6])


def test_detached_values_are_of_their_own() -> None:
    x = leaf([1.0, 2.0])
    d = x.detach()
    assert d.name != x.name
    assert not d.persistable
    x.set_value(np.zeros(2, "float32"))
    same(d.numpy(), [1, 2])


def test_untrained_parameters_get_gradients_and_no_updates() -> None:
    net = dg.Linear(2, 2, param_attr=fluid.ParamAttr(trainable=False))
    opt = fluid.optimizer.SGD(0.1, parameter_list=net.parameters())
    before = net.weight.numpy()
    loss = layers.reduce_sum(net(const([[1.0, 2.0]])))
    loss.backward()
    assert net.weight.gradient() is not None
    assert [p.name for p, _ in opt.minimize(loss)[1]] == [net.bias.name]
    same(net.weight.numpy(), before)


@pytest.mark.parametrize("steps", [1, 4])
def test_a_stopped_gradient_keeps_its_numbers(steps: int) -> None:
    x = leaf([1.0, 2.0])
    for k in range(steps):  # later ones repeat known passes
        layers.reduce_sum(x * 3.0).backward()
        same(x.gradient(), [3, 3])
        grad = x._grad_ivar()
        grad.stop_gradient = True
        layers.reduce_sum(x * 5.0).backward()
        same(grad.numpy(), [3, 3])
        x.clear_gradient()
        layers.reduce_sum(x * 7.0).backward()
        same(x.gradient(), [0, 0])
        grad.stop_gradient = False
        layers.reduce_sum(x * (k + 9.0)).backward()
        same(x.gradient(), [k + 9.0] * 2)


@pytest.mark.parametrize("which", ["gradient", "variable"])
def test_what_comes_before_a_stopped_gradient_gets_that_one(which: str) -> None:
    x = leaf([1.0, 2.0])
    y = x * 2.0
    layers.reduce_sum(y * 3.0).backward(retain_graph=True)
    (y._grad_ivar() if which == "gradient" else y).stop_gradient = True
    loss = layers.reduce_sum(y * 5.0)
    if which == "variable":  # nothing is recorded of y * 5.0 any more
        y.stop_gradient = False
        loss = layers.reduce_sum(y * 5.0)
        y.stop_gradient = True
    loss.backward()
    same(x.gradient(), [6, 6])
    same(y.gradient(), [3, 3])


def test_a_stopped_parameter_is_left_alone() -> None:
    net = dg.Linear(2, 2)
    net.weight.stop_gradient = True
    opt = fluid.optimizer.Adam(0.1, parameter_list=net.parameters())
    loss = layers.reduce_sum(net(const([[1.0, 2.0]])))
    loss.backward()
    assert [p.name for p, _ in opt.minimize(loss)[1]] == [net.bias.name]
    assert net.weight.gradient() is None
    assert not any(name.startswith(net.weight.name) for name in opt.state_dict())


# no_grad, train, eval


def test_no_grad_is_a_context_and_a_decorator() -> None:
    x = leaf([1.0])

    @dg.no_grad
    def plain() -> Any:
        return x * 2.0

    @dg.no_grad()
    def called() -> Any:
        return x * 2.0

    with dg.no_grad():
        inside = x * 2.0
    assert [v.stop_gradient for v in (inside, plain(), called(), x * 2.0)] == [True, True, True, False]


def test_no_grad_does_not_reach_into_generators() -> None:
    x = leaf([1.0])

    @dg.no_grad
    def values() -> Iterator[Any]:
        yield x * 2.0

    assert [v.stop_gradient for v in values()] == [False]


def test_an_exception_under_no_grad_leaves_recording_on() -> None:
    x = leaf([1.0])
    with pytest.raises(ZeroDivisionError), dg.no_grad():
        _ = 1 / 0
    with pytest.raises(fluid.core.EnforceNotMet):
        x + "a"
    assert not (x * 2.0).stop_gradient


def test_eval_stops_recording_everywhere_until_train() -> None:
    net, other = dg.Linear(2, 2), dg.Linear(2, 2)
    net.eval()
    y = layers.reduce_sum(other(const([[1.0, 2.0]])))
    y.backward()
    assert y.stop_gradient
    assert other.weight.gradient() is None
    other.train()
    layers.reduce_sum(other(const([[1.0, 2.0]]))).backward()
    assert other.weight.gradient() is not None


def test_functional_dropout_obeys_the_tracer_and_the_layer_itself() -> None:
    x = const(np.ones([2, 50]))
    layer = dg.Dropout(0.5)
    layer.eval()
    same(layers.dropout(x, 0.5).numpy(), np.full([2, 50], 0.5))
    assert set(np.unique(dg.Dropout(0.5)(x).numpy())) == {0.0, 1.0}  # made after eval: it trains
    layer.train()
    assert set(np.unique(layers.dropout(x, 0.5).numpy())) == {0.0, 1.0}
    assert set(np.unique(layers.dropout(x, 0.5, is_test=True).numpy())) == {0.0, 1.0}  # as the layer's argument


def test_batch_statistics_move_also_under_no_grad() -> None:
    norm = dg.BatchNorm(2, momentum=0.5)
    x = const([[1.0, 2.0], [3.0, 4.0]])
    with dg.no_grad():
        norm(x)
    same(norm._mean.numpy(), [1, 1.5])
    same(norm._variance.numpy(), [1, 1])
    norm.eval()
    norm(x)
    same(norm._mean.numpy(), [1, 1.5])
    norm.train()


# grad


def test_grad_leaves_gradients_alone() -> None:
    x = leaf([1.0, 2.0])
    y = x * x
    (g,) = dg.grad(y, x)
    same(g.numpy(), [2, 4])
    assert g.stop_gradient
    assert x.gradient() is None
    with pytest.raises(fluid.core.EnforceNotMet):
        layers.reduce_sum(y * 2.0).backward()


def test_grad_of_intermediates_and_starts() -> None:
    x = leaf([1.0, 2.0])
    h = x * 2.0
    y = h * h
    (g,) = dg.grad([y], [h], grad_outputs=[const([1.0, 10.0])], retain_graph=True)
    same(g.numpy(), [4, 80])
    (g,) = dg.grad(y, x, no_grad_vars=[h], allow_unused=True)
    assert g is None


def test_grad_refuses_inputs_that_have_no_gradient() -> None:
    x, z = leaf([1.0, 2.0]), const([3.0, 4.0])
    y = x * z
    for inputs in (z, [x, z], const([5.0])):
        with pytest.raises(fluid.core.EnforceNotMet, match="stop_gradient True"):
            dg.grad(y, inputs, allow_unused=True, retain_graph=True)
    with pytest.raises(fluid.core.EnforceNotMet, match="received: one of no_grad_vars"):
        dg.grad(y, x, no_grad_vars=[x], allow_unused=True)


def test_grad_says_what_it_does_not_reach() -> None:
    x, z = leaf([1.0]), leaf([2.0])
    with pytest.raises(fluid.core.EnforceNotMet, match="allow_unused"):
        dg.grad(x * 2.0, [x, z])
    assert dg.grad(x * 2.0, [x, z], allow_unused=True)[1] is None
    with pytest.raises(fluid.core.EnforceNotMet, match="stop_gradient"):
        dg.grad(const([1.0]) * 2.0, x)
    with pytest.raises(AssertionError):
        dg.grad(x * 2.0, x, only_inputs=False)
    with pytest.raises(AssertionError):
        dg.grad([], x)


def test_create_graph_gives_gradients_of_gradients() -> None:
    x = leaf([2.0])
    (first,) = dg.grad(x * x * x, x, create_graph=True)
    assert not first.stop_gradient
    (second,) = dg.grad(first, x, create_graph=True)
    (third,) = dg.grad(second, x)
    same([first.numpy()[0], second.numpy()[0], third.numpy()[0]], [12, 12, 6])


CONSTANT: dict[str, Callable[[Any], Any]] = {
    "scale": lambda x: [x * 3.0],
    "reshape": lambda x: [layers.reshape(x, [3])],
    "sum": lambda x: [x + 1.0, x],
    "split": lambda x: layers.split(x, 3, dim=1),
}


@pytest.mark.parametrize("name", CONSTANT)
@pytest.mark.parametrize("create", [False, True])
def test_gradients_of_a_created_graph_need_gradients_even_where_theirs_are_zero(name: str, create: bool) -> None:
    x = leaf([[1.0, 2.0, 3.0]])
    (first,) = dg.grad(CONSTANT[name](x), x, create_graph=create, retain_graph=True)
    assert first.stop_gradient is not create
    layers.reduce_sum(first * first + x * x).backward()
    same(x.gradient(), [[2, 4, 6]])


def test_gradients_of_outputs_are_counted_before_the_outputs_are_asked() -> None:
    with pytest.raises(AssertionError, match="length of grad_outputs"):
        dg.grad([const([1.0]), const([2.0])], [const([1.0])], [const([1.0])])


DOUBLE: dict[str, Callable[[Any], Any]] = {
    "matmul": lambda x: layers.matmul(x, layers.transpose(x * x, [1, 0])),
    "tanh": layers.tanh,
    "sigmoid": layers.sigmoid,
    "exp": layers.exp,
    "log": lambda x: layers.log(x * x + 1.0),
    "softmax": layers.softmax,
    "pow": lambda x: (x * x + 1.0) ** 1.5,
    "concat": lambda x: layers.concat([x * x, x], 1),
    "layer_norm": lambda x: layers.layer_norm(x, scale=False, shift=False),
    "quotient": lambda x: x / (x * x + 1.0),
    "gather": lambda x: layers.gather(x * x, const([1, 0, 1], "int64")),
}


@pytest.mark.parametrize("name", DOUBLE)
def test_second_derivatives_agree_with_differences(name: str) -> None:
    function, weights = DOUBLE[name], np.array([[0.3, -0.2], [0.1, 0.7]])

    def slope(values: np.ndarray) -> tuple[float, Any, Any]:
        x = leaf(values, "float64")
        y = function(x)
        (g,) = dg.grad(layers.reduce_sum(y * y), x, create_graph=True)
        return float(layers.reduce_sum(g * const(weights, "float64"))), g, x

    at = np.array([[0.5, -1.2], [0.8, 0.4]])
    _, g, x = slope(at)
    layers.reduce_sum(g * const(weights, "float64")).backward()
    numeric = np.zeros([2, 2])
    for i in np.ndindex(2, 2):
        step = np.zeros([2, 2])
        step[i] = 1e-5
        numeric[i] = (slope(at + step)[0] - slope(at - step)[0]) / 2e-5
    np.testing.assert_allclose(x.gradient(), numeric, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("retain", [False, True])
def test_an_unused_output_whose_gradient_was_read_has_zeros(retain: bool) -> None:
    for _ in range(4):  # the pass is known then
        parts = layers.split(leaf([[1.0, 2.0, 3.0, 4.0]]), 2, dim=1)
        layers.reduce_sum(parts[0]).backward(retain_graph=retain)
        same(parts[1].gradient(), [[0, 0]])
        assert parts[1]._grad_ivar() is not None


def test_an_output_whose_gradient_nothing_reads_has_none() -> None:
    x = leaf([[1.0, 2.0, 3.0, 4.0]])
    values, indices = layers.topk(x, 2)
    layers.reduce_sum(values).backward()
    assert indices.gradient() is None
    parts = layers.split(x, 2, dim=1)
    dg.grad(layers.reduce_sum(parts[0]), x)
    assert parts[1].gradient() is None


WRONG = [
    {"retain_graph": 1}, {"create_graph": 3}, {"allow_unused": 1}, {"only_inputs": 1}, {"grad_outputs": [1]},
    {"backward_strategy": 2},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_wrong_arguments_of_grad_are_refused(wrong: Any) -> None:
    x = leaf([1.0])
    with pytest.raises(AssertionError, match=next(iter(wrong))):
        dg.grad(x * 2.0, x, **wrong)


def test_an_output_whose_gradient_the_op_does_not_take_gives_none() -> None:
    """Its gradient op reads that of the other output alone: Loss beside Softmax."""
    found = []
    for which in (0, 1):
        x = leaf(np.ones((2, 3)))
        results = layers.softmax_with_cross_entropy(x, const([[0], [2]], "int64"), return_softmax=True)
        layers.reduce_sum(results[which]).backward()
        found.append(x.gradient())
    assert found[0] is not None and found[1] is None


@pytest.mark.parametrize(
    ("layer", "slopes", "other"),
    [
        ("elementwise_pow", [4, 6, 12], [2, 9, 64]),
        ("elementwise_div", [0, 0, 0], [0, 0, -1]),
        ("elementwise_mul", [2, 2, 2], [2, 3, 6]),
    ],
)
def test_integers_get_integers(layer, slopes, other):
    """What a kernel of integers computes is cut to them: 2 ** 2 * log(2) is 2."""
    with fluid.dygraph.guard():
        x, y = (fluid.dygraph.to_variable(np.array(v)) for v in ([2, 3, 6], [2, 2, 2]))
        x.stop_gradient = y.stop_gradient = False
        getattr(fluid.layers, layer)(x, y).backward()
        assert x.gradient().dtype == y.gradient().dtype == np.int64
        assert (x.gradient().tolist(), y.gradient().tolist()) == (slopes, other)


def test_a_product_of_integers_has_its_gradient():
    """Paddle multiplies by 1 / x, which integers cut to zero."""
    with fluid.dygraph.guard():
        x = fluid.dygraph.to_variable(np.array([2, 3, 6]))
        x.stop_gradient = False
        layers.reduce_prod(x).backward()
        assert x.gradient().tolist() == [18, 12, 6]


@pytest.mark.parametrize("starts", [None, [], (), [None]], ids=str)
def test_no_start_is_ones(starts: Any) -> None:
    x = leaf([1.0, 3.0])
    assert dg.grad(x * x, x, grad_outputs=starts)[0].numpy().tolist() == [2, 6]


def test_a_start_has_the_dtype_of_its_output() -> None:
    x = leaf([1.0, 3.0])
    with pytest.raises(fluid.core.EnforceNotMet, match="FP64 for .*FP32"):
        dg.grad(x * x, x, grad_outputs=dg.to_variable(np.ones(2)))


@pytest.mark.parametrize("calls", [1, 2])
def test_a_sparse_gradient_has_the_shape_of_its_rows(calls: int) -> None:
    table = dg.Embedding([5, 2], is_sparse=True)
    ids = dg.to_variable(np.array([1, 2, 1]))
    layers.sum([layers.mean(table(ids)) for _ in range(calls)]).backward()
    grad = table.weight._grad_ivar()
    rows = [1, 2, 1] if calls == 1 else [1, 2]  # a sum is merged
    assert grad.shape == [len(rows), 2] and len(grad) == len(rows)
    held = grad.value().get_selected_rows()
    assert held.rows() == rows and held.height() == 5
    assert np.array(held.get_tensor()).shape == (len(rows), 2)
    table.clear_gradients()
    assert grad.type == fluid.core.VarDesc.VarType.SELECTED_ROWS


@pytest.mark.parametrize(
    "read", [str, lambda v: v.numpy(), lambda v: v.detach(), lambda v: v.set_value(np.ones([1, 2], "f4"))]
)
def test_a_sparse_gradient_is_no_dense_value(read: Any) -> None:
    table = dg.Embedding([5, 2], is_sparse=True)
    layers.mean(table(dg.to_variable(np.array([1])))).backward()
    with pytest.raises(fluid.core.EnforceNotMet, match="SelectedRows"):
        read(table.weight._grad_ivar())
