"""check_grad: right programs pass, a planted fault is caught and named."""

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import fluidjax as fluid
import lowering
from fluidjax.backward import gradients
from fluidjax.gradcheck import local
from fluidjax.gradcheck.whole import Whole
from fluidjax.testing.programs import programs

pytestmark = pytest.mark.usefixtures("compiled_quickly")

RANDOM = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def two_layers():
    """(loss, feed, scope) of tanh(x W) V with a squared error."""
    program = fluid.Program()
    scope = fluid.Scope()
    rng = np.random.default_rng(0)
    with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [-1, 4], "float32")
        block = program.global_block()
        for name in ("w", "v"):
            block.create_parameter(name=name, shape=[4, 4], dtype="float32")
            scope.var(name).get_tensor().set(rng.standard_normal((4, 4)).astype("float32"), fluid.CPUPlace())
        hidden = fluid.layers.tanh(fluid.layers.mul(x, block.var("w")))
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.mul(hidden, block.var("v"))))
    return loss, {"x": rng.standard_normal((3, 4)).astype("float32")}, scope


def test_a_right_program_passes_and_reports_every_op():
    loss, feed, scope = two_layers()
    report = fluid.check_grad(loss, feed, scope=scope)
    assert report.ok and report.first_bad_op is None
    assert [row.what.split()[0] for row in report.ops] == ["mean", "square", "mul", "tanh", "mul"]
    assert {row.what for row in report.parameters} == {"w", "v"}
    assert all(row.autodiff is not None for row in report.parameters)
    assert "per parameter" in str(report)
    page = report._repr_html_()
    assert "<summary>per parameter: 2</summary>" in page and "<b>ok: everything was checked" in page
    assert "<details open" not in page and page.count("<td>") == page.count("<tr>") - page.count("<thead>")


def test_a_bias_that_the_loss_cannot_feel(monkeypatch):
    """As batch normalisation takes it away: its gradient is 0, and differences see the loss's last digits."""
    rows = np.arange(24).reshape(8, 3) % 7 / 7

    def normalised(values):
        hidden = rows + values["b"]
        return float(np.tanh((hidden - hidden.mean(0)) / np.sqrt(hidden.var(0) + 1e-5)).mean())

    slope = local.central(normalised, {"b": np.zeros(3)}, {"b": np.ones(3)}, 0.0, 0.0)
    assert abs(slope) <= local.resolved(1.0) < 2e-12
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        x, b = fluid.data("x", [1]), fluid.layers.create_parameter([1], "float32")
        loss = x + b - b
        fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
        for noise, right in ((local.resolved(1.0) / 2, True), (1e-10, False)):
            monkeypatch.setattr(Whole, "difference", lambda *args, noise=noise: args[-2] + noise)
            with nullcontext() if right else pytest.raises(fluid.GradientMismatch, match="DISAGREES"):
                fluid.check_grad(loss, feed={"x": np.ones(1, "float32")})


def test_a_planted_wrong_rule_is_caught_and_named(monkeypatch):
    loss, feed, scope = two_layers()
    rule = lowering.get_op("tanh").gradient
    monkeypatch.setattr(rule, "fn", lambda out, d_out: d_out * (1 - out))
    with pytest.raises(fluid.GradientMismatch, match=r"first gradient op that disagrees is tanh_grad") as caught:
        fluid.check_grad(loss, feed, scope=scope)
    report = caught.value.report
    assert "<details open><summary>per gradient op" in report._repr_html_() and "class=bad" in report._repr_html_()
    bad = [row.what.split()[0] for row in report.ops if not row.ok]
    assert bad == ["tanh"]
    assert {row.what: row.ok for row in report.parameters} == {"w": False, "v": True}


def test_a_small_fault_is_caught_too(monkeypatch):
    loss, feed, scope = two_layers()
    rule = lowering.get_op("square").gradient
    right = rule.fn
    monkeypatch.setattr(rule, "fn", lambda *args, **attrs: right(*args, **attrs) * (1 + 1e-4))
    assert not fluid.check_grad(loss, feed, scope=scope, raises=False).ok


def test_program_and_scope_are_left_as_they_are():
    loss, feed, scope = two_layers()
    program = loss.block.program
    before = program.desc.serialize_to_string(), np.array(scope.find_var("w").get_tensor())
    fluid.check_grad(loss, feed, scope=scope)
    assert program.desc.serialize_to_string() == before[0]
    np.testing.assert_array_equal(np.array(scope.find_var("w").get_tensor()), before[1])


def test_a_program_with_its_backward_pass_is_checked_by_its_forward_ops():
    loss, feed, scope = two_layers()
    with fluid.program_guard(loss.block.program, fluid.Program()):
        fluid.backward.append_backward(loss)
    assert fluid.check_grad(loss, feed, scope=scope).ok


def test_a_loss_that_is_no_variable_of_the_program_is_refused():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        with pytest.raises(ValueError, match="'nope' is no variable of the program"):
            fluid.check_grad("nope")


@RANDOM
@given(programs())
def test_random_programs(sample):
    sample.check_grad()


@settings(RANDOM, max_examples=5)
@given(programs(ragged=True))
def test_random_ragged_programs(sample):
    sample.check_grad()


@RANDOM
@given(programs(max_ops=3, control_flow=True))
def test_random_programs_with_loops_and_branches(sample):
    sample.check_grad()


@settings(RANDOM, max_examples=4)
@given(programs(max_ops=3))
def test_random_programs_with_a_penalty_on_their_gradient(sample):
    """Second derivatives: the gradient of a program's gradient by its data joins the loss."""
    with fluid.program_guard(sample.program, fluid.Program()), fluid.unique_name.guard("penalty_"):
        x = sample.program.global_block().var("x")
        x.stop_gradient = False
        (slope,) = gradients(sample.loss, x)
        loss = fluid.layers.elementwise_add(sample.loss, fluid.layers.mean(fluid.layers.square(slope)))
    fluid.check_grad(loss, sample.feed, scope=sample.scope, parameter_list=sample.parameters)


def test_a_loop_that_trains_is_checked_without_its_backward_blocks():
    layers = fluid.layers
    program, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(program, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        x = fluid.data("x", [3, 4], "float32")
        i = layers.fill_constant([1], "int64", 0)
        i.stop_gradient = True
        trips = layers.fill_constant([1], "int64", 2)
        states = layers.array_write(layers.fc(x, 4), i)
        more = layers.less_than(i, trips)
        loop = layers.While(more)
        with loop.block():
            new = layers.fc(layers.array_read(states, i), 4, act="tanh")
            layers.increment(i)
            layers.array_write(new, i, array=states)
            layers.less_than(i, trips, cond=more)
        loss = layers.mean(layers.square(layers.array_read(states, i)))
        fluid.optimizer.SGD(0.1).minimize(loss)
        fluid.Executor(fluid.CPUPlace()).run(startup)
    report = fluid.check_grad(loss, {"x": np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)}, scope=scope)
    assert {row.what for row in report.parameters} == {"fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"}
    assert all(abs(row.fluid) > 1e-4 for row in report.parameters)
    assert all(row.autodiff is not None for row in report.parameters), "jax.grad takes part, step by step"


def test_jax_takes_part_in_a_ragged_recurrence():
    layers, lengths = fluid.layers, [2, 1]
    program, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(program, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        x = fluid.data("x", [None, 3], "float32", lod_level=1)
        rnn = layers.DynamicRNN()
        with rnn.block():
            word, before = rnn.step_input(x), rnn.memory(shape=[3])
            after = layers.fc([word, before], 3, act="tanh")
            rnn.update_memory(before, after)
            rnn.output(after)
        loss = layers.mean(layers.square(layers.sequence_last_step(rnn())))
        fluid.Executor(fluid.CPUPlace()).run(startup)
    rows = np.linspace(-1, 1, 3 * sum(lengths), dtype="float32").reshape(-1, 3)
    feed = {"x": fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace())}
    report = fluid.check_grad(loss, feed, scope=scope)
    assert len(report.parameters) == 3
    assert all(row.autodiff is not None for row in report.parameters)
