"""Gradients of gradients, of every differentiable op: equal to differences of the first gradients, or an error."""

import jax
import numpy as np
import pytest

import fluidjax as fluid
import lowering
from fluidjax.backward import append_backward, gradients
from fluidjax.testing import Case, table
from fluidjax.testing.case import case, positive
from fluidjax.testing.twice import check_higher
from tests.backward.build import Builder, run
from tests.lod.property import draw, values_of
from tests.ops.test_sequence_gradients import DIFFERENTIABLE as RAGGED

pytestmark = pytest.mark.usefixtures("compiled_quickly")

# One case of each op; the cases whose gradient is no derivative, as in Fluid, have no second one either.
CASES = [c for c in table() if not c.label and c.smooth and lowering.get_op(c.op).differentiable]
# (shapes of X and Y, axis): the first is broadcast, the second, or both.
BROADCAST = [((4, 1), (1, 3), -1), ((3,), (3, 3), 0), ((3, 4), (2, 3, 4, 5), 1), ((3, 3), (3,), 0)]
THIRD = "tanh log pow elementwise_mul elementwise_div matmul concat softmax layer_norm relu".split()


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_second_derivative(case, rng):
    assert check_higher(case, rng), "the case has nothing to compare"


@pytest.mark.parametrize("op", THIRD)
def test_third_derivative(op, rng):
    (case,) = (c for c in CASES if c.op == op)
    check_higher(case, rng, order=3)


# One case of each op; the rows of sequence_slice are padded always, which the factors of the sums are not.
@pytest.mark.parametrize("case", {c.op: c for c in RAGGED if c.op != "sequence_slice"}.values(), ids=lambda c: c.name)
def test_second_derivative_of_ragged_ops(case, rng):
    with jax.enable_x64(True):
        values = values_of(case, draw(case, rng, 5, 11), None, "first")
        given = {slot: jax.tree_util.tree_map(np.asarray, v) for slot, v in values.items() if _holds(v)}
    draws = {slot: [_fixed(w) for w in v] if isinstance(v, list) else _fixed(v) for slot, v in given.items()}
    assert check_higher(Case(case.op, draws, case.attrs, case.ids), rng)


def _holds(value):
    return value is not None and not (isinstance(value, list) and not value)


def _fixed(value):
    return lambda rng: value


@pytest.mark.parametrize("wrt", [None, ("X",), ("Y",)], ids=["both", "x", "y"])
@pytest.mark.parametrize(("x", "y", "axis"), BROADCAST)
@pytest.mark.parametrize("op", ["elementwise_add", "elementwise_div"])
def test_second_derivative_of_broadcast_operands(op, x, y, axis, wrt, rng):
    assert check_higher(case(op, {"X": positive(*x), "Y": positive(*y)}, {"axis": axis}, wrt=wrt), rng)


@pytest.mark.parametrize("name", ["nce-log-uniform", "elementwise_mul-small-x", "elementwise_pow-small-x"])
def test_second_derivative_of_other_forms(name, rng):
    assert check_higher(next(c for c in table() if c.name == name), rng)


def test_a_division_without_what_broadcasting_needs_is_refused(rng):
    """As in a program from Paddle, whose op has no such slot."""
    rule = lowering.get_op("elementwise_div_grad_grad")
    with pytest.raises(ValueError, match="expected an X as large as Out"):
        rule(np.ones((4, 3)), np.ones((4, 3)), np.ones(3), np.ones(3), axis=-1)


def test_a_division_of_equal_shapes_is_written_as_fluid_writes_it():
    for x_shape, slots in (([2, 3], {"Y", "Out", "DX", "DDX"}), ([3], {"Y", "Out", "DX", "DDX", "Out@GRAD"})):
        net = Builder()
        x = net.data("x", x_shape, stop_gradient=False)
        y = net.op("elementwise_div", {"X": x, "Y": net.data("y", [2, 3])}, "q")
        (first,) = gradients(y, x)
        gradients(net.op("square", {"X": first}, "s"), x)
        (op,) = (op for op in net.program.global_block().ops if op.type == "elementwise_div_grad_grad")
        assert {name for name in op.input_names if op.input(name)} == slots


def test_the_counts():
    """Of the op types with a plain gradient op all have a second derivative but these."""
    found = [lowering.get_op(t) for t in lowering.registered_ops()]
    first = [d for d in found if d.forward is not None and d.forward.forward is None and d.kind == "plain"]
    assert len(first) >= 200
    assert {d.type for d in first if not d.differentiable} == {"pyramid_hash_grad"}
    assert len(CASES) >= 190


def test_the_gradient_of_tanh_times_its_argument():
    net = Builder()
    x = net.data("x", [3], stop_gradient=False)
    y = net.op("elementwise_mul", {"X": net.op("tanh", {"X": x}, "t"), "Y": x}, "y")
    (first,) = gradients(y, x)
    (second,) = gradients(first, x)
    feed = {"x": np.array([0.4, -1.0, 2.0], np.float32)}
    (got,) = run(net.program, feed, [second.name])
    want = jax.vmap(jax.grad(jax.grad(lambda v: jax.numpy.tanh(v) * v)))(feed["x"])
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_an_overwritten_input_is_refused():
    net = Builder()
    x = net.data("x", [2], stop_gradient=False)
    a = net.op("scale", {"X": x}, "a", scale=2.0)
    y = net.op("tanh", {"X": a}, "y")
    net.op("scale", {"X": y}, "a", scale=3.0)
    (first,) = gradients(y, x)
    with pytest.raises(ValueError, match=r"tanh_grad cannot be differentiated, because op scale .* overwrites \['a'\]"):
        gradients(first, x)


def loop(x):
    i = fluid.layers.fill_constant([1], "int64", 0)
    return fluid.layers.while_loop(lambda i, v: i < 2, lambda i, v: [i + 1, fluid.layers.tanh(v)], [i, x])[1]


def branch(x):
    positive = fluid.layers.reduce_sum(x) > fluid.layers.fill_constant([1], "float32", 0.0)
    return fluid.layers.cond(positive, lambda: x * x, lambda: x * 3.0)


def recurrence(x):
    rnn = fluid.layers.StaticRNN()
    with rnn.step():
        step = rnn.step_input(x)
        memory = rnn.memory(shape=[-1, 3], batch_ref=step, ref_batch_dim_idx=0)
        new = fluid.layers.tanh(step + memory)
        rnn.update_memory(memory, new)
        rnn.step_output(new)
    return rnn()


BLOCKS = {"while": loop, "conditional_block": branch, "recurrent": recurrence}


@pytest.mark.parametrize("op_type", BLOCKS)
def test_a_penalty_on_the_gradient_of_an_op_with_a_block_is_refused(op_type):
    """Nothing is left out of a gradient without a word."""
    layers = fluid.layers
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [2, 1, 3], "float32")
        x.stop_gradient = False
        (first,) = gradients(layers.reduce_sum(BLOCKS[op_type](x)), x)
        with pytest.raises(ValueError, match=f"which op {op_type}_grad computes") as refused:
            append_backward(layers.reduce_sum(layers.square(first)))
    assert "expected" in str(refused.value)
    assert "to do" in str(refused.value)
