"""Faults of kinds that a check at one point, in float64, over exact rows and few of them does not see."""

import jax.numpy as jnp
import numpy as np
import pytest

import fluidjax as fluid
import lowering
from fluidjax.backward import gradients
from lowering.values import data_of

pytestmark = pytest.mark.usefixtures("compiled_quickly")

layers = fluid.layers


def built(make, feed):
    """(loss, feed, scope) of the loss that ``make`` builds."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        loss = make()
        fluid.Executor(fluid.CPUPlace()).run(startup)
    return loss, feed, scope


def dense():
    """mean((tanh(x W + b))^2) of three rows, of which there may be more."""

    def make():
        return layers.mean(layers.square(layers.fc(fluid.data("x", [-1, 4], "float32"), 4, act="tanh")))

    return built(make, {"x": np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)})


def ragged():
    def make():
        x = fluid.data("x", [-1, 4], "float32", lod_level=1)
        return layers.mean(layers.square(layers.fc(x, 4, act="tanh")))

    rows = np.linspace(-1, 1, 20, dtype="float32").reshape(5, 4)
    return built(make, {"x": fluid.create_lod_tensor(rows, [[2, 0, 3]], fluid.CPUPlace())})


def checked(program):
    loss, feed, scope = program
    return fluid.check_grad(loss, feed, scope=scope)


def test_right_programs_are_ok():
    for program in (dense(), ragged()):
        report = checked(program)
        assert report.ok
        assert [row.what for row in report.feeds] == ["x"]
        assert {row.what for row in report.compiled} == {"fc_0.w_0", "fc_0.b_0", "x"}
        assert len(report.float32) == len(report.ops) == 5
    assert len(report.padded) == 5


def test_a_forgotten_mask_is_caught(monkeypatch):
    program = ragged()
    monkeypatch.setattr(lowering.get_op("mean"), "fn", lambda x: jnp.mean(data_of(x)).reshape(1))
    with pytest.raises(fluid.GradientMismatch, match="disagrees is mean_grad over padded rows"):
        checked(program)


def test_padding_rows_of_a_gradient_that_are_not_zero_are_caught(monkeypatch):
    program = ragged()
    rule = lowering.get_op("mean").gradient

    def unmasked(x, d_out):
        rows = x.shape[0] if x.nrows is None else x.nrows
        return jnp.broadcast_to(d_out.reshape(()) / (rows * x.shape[1]), x.shape)

    monkeypatch.setattr(rule, "fn", unmasked)
    with pytest.raises(fluid.GradientMismatch, match="disagrees is mean_grad over padded rows"):
        checked(program)


@pytest.mark.parametrize("part", ["forward", "gradient"])
def test_a_fault_of_float32_alone_is_caught(monkeypatch, part):
    program = dense()
    rule = lowering.get_op("tanh") if part == "forward" else lowering.get_op("tanh").gradient
    right = rule.fn

    def wrong(*args):
        found = right(*args)
        return found * 1.01 if found.dtype == np.float32 else found

    monkeypatch.setattr(rule, "fn", wrong)
    with pytest.raises(fluid.GradientMismatch, match="disagrees is tanh_grad in float32") as caught:
        checked(program)
    report = caught.value.report
    assert all(row.ok for row in [*report.ops, *report.parameters])
    assert [row.what for row in report.float32 if not row.ok] == ["tanh (#2)"]


def test_a_fault_behind_the_eighth_row_is_caught(monkeypatch):
    program = dense()
    rule = lowering.get_op("square").gradient
    right = rule.fn
    monkeypatch.setattr(rule, "fn", lambda *args, **attrs: right(*args, **attrs).at[8:].multiply(1.5))
    with pytest.raises(fluid.GradientMismatch, match="disagrees is square_grad, "):
        checked(program)


def test_a_program_of_a_fixed_size_is_checked_as_it_is():
    def make():
        x = fluid.data("x", [-1, 4], "float32")
        return layers.mean(layers.square(layers.reshape(x, [3, 4]) * layers.fill_constant([3, 4], "float32", 2.0)))

    assert checked(built(make, {"x": np.ones((3, 4), "float32")})).ok


def loop(kind):
    """tanh(x W) in a loop or branch, squared around it; ``kind`` says which."""

    def make():
        x = fluid.data("x", [3, 4], "float32")
        weight = layers.create_parameter([4, 4], "float32", name="w")

        def step(v):
            return layers.tanh(layers.mul(v, weight))

        if kind == "while":
            i = layers.fill_constant([1], "int64", 0)
            out = layers.while_loop(lambda i, v: i < 2, lambda i, v: [i + 1, step(v)], [i, x])[1]
        elif kind == "static":
            rnn, words = layers.StaticRNN(), layers.reshape(x, [3, 1, 4])
            start = layers.fill_constant([1, 4], "float32", 0.1)
            with rnn.step():
                word, before = rnn.step_input(words), rnn.memory(init=start)
                after = step(layers.elementwise_add(before, word))
                rnn.update_memory(before, after)
                rnn.step_output(after)
            out = rnn()
        else:
            limit = layers.fill_constant([1], "float32", -1e9 if kind == "taken" else 1e9)
            taken = layers.less_than(limit, layers.reduce_sum(x))
            out = layers.cond(taken, lambda: step(x), lambda: layers.scale(layers.mul(x, weight), 2.0))
        return layers.mean(layers.square(out))

    return built(make, {"x": np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)})


@pytest.mark.parametrize("kind", ["while", "static", "taken", "untaken"])
def test_an_op_in_a_block_is_named(monkeypatch, kind):
    program = loop(kind)
    report = checked(program)
    assert report.ok, report
    assert any(row.what.startswith("tanh (#") and "of block" in row.what for row in report.ops)
    rule = lowering.get_op("tanh").gradient
    monkeypatch.setattr(rule, "fn", lambda out, d_out: d_out * (1 - out))
    with pytest.raises(fluid.GradientMismatch, match=r"disagrees is tanh_grad, .* of block \d"):
        checked(program)


def test_what_was_not_checked_is_said_and_not_ok():
    def make():
        x = fluid.data("x", [3, 4], "float32")
        i = layers.fill_constant([1], "int64", 0)

        def step(i, v):
            return [i + 1, layers.dropout(layers.tanh(v), 0.5)]

        return layers.mean(layers.while_loop(lambda i, v: i < 2, step, [i, x])[1])

    report = checked(built(make, {"x": np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)}))
    assert report.agrees and not report.ok
    assert report.unchecked == ["the compiled run: dropout in a loop or branch draws other numbers"]
    assert str(report).endswith("what was checked agrees, but not everything was checked")


def test_dropout_is_checked_with_the_numbers_it_drew():
    def make():
        x = fluid.data("x", [-1, 4], "float32")
        return layers.mean(layers.square(layers.dropout(layers.fc(x, 4), 0.5)))

    assert checked(built(make, {"x": np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)})).ok


@pytest.mark.parametrize("act", ["tanh", "sigmoid", "leaky_relu"])
def test_a_gradient_penalty(act):
    """The loss is computed from ``fluid.gradients``; layer_norm's statistics vary, though they stop gradients."""

    def make():
        x = fluid.data("x", [-1, 4], "float32")
        x.stop_gradient = False
        y = layers.fc(layers.layer_norm(layers.fc(x, 5, act=act)), 1)
        (slope,) = gradients(y, x)
        norm = layers.sqrt(layers.reduce_sum(layers.square(slope), dim=1) + 1e-6)
        loss = layers.mean(y) + layers.reduce_mean(layers.square(norm - 1.0))
        fluid.optimizer.SGD(0.1).minimize(loss)
        return loss

    report = checked(built(make, {"x": np.random.default_rng(3).standard_normal((3, 4)).astype("float32")}))
    assert report.ok, report
    assert len(report.parameters) == 6
    assert {"layer_norm_grad", "mul_grad"} <= {row.what.split()[0] for row in report.ops}


def test_the_report_is_a_table():
    lines = str(checked(dense())).splitlines()
    assert lines[-1] == "ok: everything was checked, and agrees"
    head = lines.index("per parameter")
    columns = [line.rindex("e") for line in (lines[head + 2], lines[head + 3])]
    assert columns[0] == columns[1], "the numbers of a column end in one place"


def test_a_penalty_on_the_gradient_by_ragged_data():
    """Gradients of gradients keep zeros in padding rows, where a bias is broadcast too."""

    def make():
        x = fluid.data("x", [-1, 4], "float32", lod_level=1)
        x.stop_gradient = False
        (slope,) = gradients(layers.fc(layers.fc(x, 5, act="relu"), 1), x)
        return layers.mean(layers.sqrt(layers.reduce_sum(layers.square(slope), dim=1, keep_dim=True)))

    rows = np.random.default_rng(0).standard_normal((5, 4)).astype("float32")
    report = checked(built(make, {"x": fluid.create_lod_tensor(rows, [[2, 3]], fluid.CPUPlace())}))
    assert report.ok, report
    assert report.padded
