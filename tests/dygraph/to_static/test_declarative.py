"""Functions that run as programs: what they are called with and return, training, the ProgramTranslator."""

from __future__ import annotations

import traceback

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import dygraph, layers
from fluidjax.dygraph.dygraph_to_static.program_translator import convert_function_with_cache
from fluidjax.eager.recorded.pending import recorder
from tests.dygraph.to_static.helpers import same

X = np.array([[1.0, 2.0, -1.0], [0.5, -3.0, 2.0], [4.0, 1.0, 1.0], [-2.0, 0.0, 3.0]], "float32")


@pytest.fixture
def translator():
    """The ProgramTranslator, as new before and after."""
    dygraph.ProgramTranslator.reset()
    yield dygraph.ProgramTranslator()
    dygraph.ProgramTranslator.reset()


class Net(dygraph.Layer):
    """Two layers, a branch, a loop on a variable, batch statistics."""

    def __init__(self):
        super().__init__()
        self.first = dygraph.Linear(3, 4)
        self.norm = dygraph.BatchNorm(4)
        self.second = dygraph.Linear(4, 4, act="tanh")
        self.scale = dygraph.to_variable(np.array([0.5], "float32"))

    @dygraph.declarative
    def forward(self, x):
        y = self.norm(self.first(x))
        if layers.reduce_sum(y * y) > 1.0:
            y = y * self.scale
        steps = layers.fill_constant([1], "int64", 3)
        for _ in range(steps):
            y = self.second(y) + y
        return layers.reduce_mean(layers.square(y - 0.3)), y


def train(enabled: bool) -> tuple[list, list, list]:
    """(losses, gradients of the input, parameters after) of four steps."""
    dygraph.ProgramTranslator().enable(enabled)
    losses, gradients = [], []
    with dygraph.guard():
        fluid.default_startup_program().random_seed = 7
        net = Net()
        for i, p in enumerate(net.parameters()):
            p.set_value(np.linspace(-0.5, 0.6, int(np.prod(p.shape)), dtype="float32").reshape(p.shape) + 0.1 * i)
        optimizer = fluid.optimizer.SGD(0.1, parameter_list=net.parameters())
        for step in range(4):
            x = dygraph.to_variable(X + step)
            x.stop_gradient = False
            loss, _ = net(x)
            loss.backward()
            optimizer.minimize(loss)
            losses.append(loss.numpy())
            gradients.append(x.gradient())
            net.clear_gradients()
        return losses, gradients, [p.numpy() for p in net.state_dict().values()]


def test_it_trains_as_eager_mode_does(translator) -> None:
    for one, two in zip(train(False), train(True), strict=True):
        same(one, two)


def test_a_step_compiles_once(translator) -> None:
    train(True)
    recorder.blocks.wait()
    _, (_, partial) = translator.get_program_cache().last()
    assert partial.compilations == 2
    assert len(translator.get_program_cache()) == 1


def test_results_keep_their_form(translator) -> None:
    @dygraph.declarative
    def several(x, flag=True):
        return {"a": x + 1, "b": (x * 2, 3)} if flag else None

    with dygraph.guard():
        found = several(X)
        same(found["a"].numpy(), X + 1)
        assert type(found["b"]) is list and found["b"][1] == 3
        assert several(X, flag=False) is None


def test_gradients_are_not_recorded_under_no_grad(translator) -> None:
    with dygraph.guard():
        net = Net()
        with dygraph.no_grad():
            assert net(X)[0].stop_gradient
        assert not net(X)[0].stop_gradient


def test_train_and_eval_have_programs_of_their_own(translator) -> None:
    with dygraph.guard():
        net = Net()
        before = net.norm._mean.numpy()
        net(X)
        after = net.norm._mean.numpy()
        assert not np.allclose(before, after)
        net.eval()
        net(X)
        same(net.norm._mean.numpy(), after)
        assert len(translator.get_program_cache()) == 2


def test_outputs_that_depend_on_each_other_give_the_sum_of_gradients(translator) -> None:
    @dygraph.declarative
    def two(x):
        y = x * 2
        return y, layers.reduce_sum(y * y), y

    with dygraph.guard():
        x = dygraph.to_variable(X)
        x.stop_gradient = False
        y, total, again = two(x)
        (layers.reduce_sum(y) + total + layers.reduce_sum(again) * 3).backward()
        same(x.gradient(), 2.0 + 8 * X + 6.0)


def test_an_error_leaves_eager_mode_on(translator) -> None:
    @dygraph.declarative
    def wrong(x):
        return layers.matmul(x, x)

    with dygraph.guard():
        with pytest.raises(ValueError, match="matmul"):
            wrong(X)
        assert fluid.in_dygraph_mode()


def test_an_error_shows_the_line_of_the_function(translator) -> None:
    @dygraph.declarative
    def wrong(x):
        if layers.mean(x) > 0:
            x = x + undefined_name  # noqa: F821
        return x

    with dygraph.guard(), pytest.raises(NameError) as caught:
        wrong(X)
    lines = [frame.line for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "x = x + undefined_name  # noqa: F821" in lines


def test_parameters_made_inside_are_refused(translator) -> None:
    @dygraph.declarative
    def makes(x):
        return dygraph.Linear(3, 2)(x)

    with dygraph.guard(), pytest.raises(ValueError, match="We don't support to define layer with parameters"):
        makes(X)


def test_nested_declarative_functions_are_one_program(translator) -> None:
    @dygraph.declarative
    def inner(x):
        if layers.mean(x) > 0:
            x = x * 3
        return x

    @dygraph.declarative
    def outer(x):
        return inner(x) + 1

    with dygraph.guard():
        same(outer(np.abs(X)).numpy(), np.abs(X) * 3 + 1)
    assert len(translator.get_program_cache()) == 1


def test_disabled_runs_in_eager_mode(translator) -> None:
    seen = []

    @dygraph.declarative
    def look(x):
        seen.append(type(x).__name__)
        return x

    with dygraph.guard():
        x = dygraph.to_variable(X)
        look(x)
        translator.enable(False)
        look(x)
    assert seen == ["Variable", "VarBase"]
    with pytest.raises(TypeError, match="must be bool"):
        translator.enable("yes")


def test_a_list_of_one_variable_is_the_variable(translator) -> None:
    @dygraph.declarative
    def alone(x):
        return [x + 1]

    @dygraph.declarative
    def pair(x):
        return x + 1, x

    with dygraph.guard():
        same(alone(X).numpy(), X + 1)
        assert [v.shape for v in pair(X)] == [list(X.shape)] * 2


def simple(x):
    if layers.mean(x) > 0:
        x = x + 1
    return x


def test_get_program_runs_in_an_executor(translator) -> None:
    with dygraph.guard():
        main, startup, inputs, outputs = translator.get_program(simple, X)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    found = exe.run(main, feed={inputs[0].name: X}, fetch_list=outputs)[0]
    same(found, X + 1)


def test_get_func_writes_into_the_current_program(translator) -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [4, 3], "float32")
        y = translator.get_func(simple)(x)
        z = dygraph.dygraph_to_static_func(simple)(x)
    found = fluid.Executor(fluid.CPUPlace()).run(main, feed={"x": X}, fetch_list=[y, z])
    same(found[0], X + 1)
    same(found[1], X + 1)
    assert convert_function_with_cache(simple) is convert_function_with_cache(simple)


def test_get_code_is_python(translator) -> None:
    code = translator.get_code(simple)
    compile(code, "code", "exec")
    assert "_jst.if_(" in code


def test_save_inference_model(translator, tmp_path) -> None:
    with dygraph.guard():
        net = Net()
        net.eval()
        expected = net(X)[1].numpy()
        translator.save_inference_model(str(tmp_path), feed=[0], fetch=[1])
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = fluid.io.load_inference_model(str(tmp_path), exe)
        same(exe.run(program, feed={feeds[0]: X}, fetch_list=fetches)[0], expected)


def test_values_in_static_mode_are_refused(translator) -> None:
    with pytest.raises(AssertionError, match="called in static mode with values"):
        dygraph.declarative(simple)(X)


def test_assert_on_a_variable_stops_the_run(translator) -> None:
    @dygraph.declarative
    def positive(x):
        assert layers.mean(x) > 0, "must be positive"
        return x + 1

    with dygraph.guard():
        same(positive(np.abs(X)).numpy(), np.abs(X) + 1)
        with pytest.raises(AssertionError, match="must be positive"):
            positive(-np.abs(X))


def test_arrays_become_variables_inside(translator) -> None:
    @dygraph.declarative
    def adds(x):
        x = dygraph.to_variable(x)
        if layers.mean(x) > 0:
            x = x + fluid.dygraph.to_variable(np.array([5.0], "float32"))
        return x

    with dygraph.guard():
        same(adds(np.abs(X)).numpy(), np.abs(X) + 5)
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        y = dygraph.dygraph_to_static_func(adds)(layers.fill_constant([2], "float32", 1.0))
        same(fluid.Executor(fluid.CPUPlace()).run(fetch_list=[y])[0], np.array([6.0, 6.0]))


def test_casts_and_lengths(translator) -> None:
    @dygraph.declarative
    def casts(x):
        total = layers.reduce_sum(x)
        return int(total) + len(x), float(layers.cast(total, "int64")) / 2, bool(total)

    with dygraph.guard():
        found = [v.numpy() for v in casts(np.abs(X))]
    same(found, [np.array([24]), np.array([10.0]), np.array([True])])


def test_print_shows_values_of_the_run(translator, capfd) -> None:
    @dygraph.declarative
    def shows(x):
        print("the input is", x)
        return x + 1

    with dygraph.guard():
        shows(X).numpy()
    assert "the input is" in "".join(capfd.readouterr())


def test_backward_uses_the_values_that_parameters_have_then(translator) -> None:
    found = []
    for enabled in (False, True):
        translator.enable(enabled)
        with dygraph.guard():
            x, w = dygraph.to_variable(X), dygraph.to_variable(X * 2)
            x.stop_gradient = w.stop_gradient = False
            squares = dygraph.declarative(product)
            loss = squares(x, w)
            w.set_value(X * 5)
            loss.backward()
            found.append(x.gradient())
    same(found[0], found[1])
    same(found[1], X * 5)


def product(x, w):
    return layers.reduce_sum(x * w)


def test_two_losses_that_are_minimized_one_after_the_other(translator) -> None:
    """The second backward pass runs after the first optimizer replaced what both read."""
    with dygraph.guard():
        net = Net()
        sgd = fluid.optimizer.SGD(0.1, parameter_list=net.parameters())
        for step in range(4):
            first, _ = net(dygraph.to_variable(X + step))
            second, _ = net(dygraph.to_variable(X - step))
            for loss in (first, second):
                loss.backward()
                sgd.minimize(loss)
                net.clear_gradients()
        assert np.isfinite(net.first.weight.numpy()).all()


def partly_constant(x):
    y = x * 2
    with dygraph.no_grad():
        factor = layers.exp(y)
    if layers.mean(x) > 0:
        y = y * factor
    return layers.reduce_sum(y)


def test_no_grad_inside(translator) -> None:
    found = []
    for enabled in (False, True):
        translator.enable(enabled)
        with dygraph.guard():
            x = dygraph.to_variable(np.abs(X))
            x.stop_gradient = False
            dygraph.declarative(partly_constant)(x).backward()
            found.append(x.gradient())
    same(found[0], found[1])


def chained(a):
    b = a - 1
    c = b * 5
    return a + c * 2 + c


def test_arguments_keep_their_values_whatever_they_are_called() -> None:
    """Eager values are numbered by the tracer, program variables by another count: both may come to ``tmp_1``."""
    with dygraph.guard():
        a = dygraph.to_variable(X)
        for _ in range(3):
            a = a + 1
            same(dygraph.declarative(chained)(a).numpy(), chained(a).numpy())


def test_captured_values_keep_theirs() -> None:
    with dygraph.guard():
        x = dygraph.to_variable(X)
        results = [x * n for n in range(4)]
        held = results[1]

        def step(a):
            b = a - 1
            return b * held * 2 + held

        for a in results[2:]:
            same(dygraph.declarative(step)(a).numpy(), step(a).numpy())
