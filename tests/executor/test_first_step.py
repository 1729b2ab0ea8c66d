"""Time to first step: what a new program compiles."""

from collections.abc import Callable, Iterator

import jax
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.execution.runs.mode import interpret_mode
from tests.executor.conftest import Net

BACKEND_COMPILE = "/jax/core/compile/backend_compile_duration"
PARAMETERS = ("w0", "b0", "w1", "b1", "w2", "b2")


@pytest.fixture
def compiled() -> Iterator[Callable[[], list[str]]]:
    """Returns the names of what XLA compiled since the last call."""
    names: list[str] = []

    def listen(event: str, duration: float, **about: object) -> None:
        if event == BACKEND_COMPILE:
            names.append(str(about.get("fun_name")))

    def since() -> list[str]:
        found = list(names)
        names.clear()
        return found

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield since
    jax.monitoring.unregister_event_duration_listener(listen)


def layer(x: fluid.framework.Variable, i: int, size: int, initializer: object) -> fluid.framework.Variable:
    weight, bias = fluid.ParamAttr(name=f"w{i}", initializer=initializer), fluid.ParamAttr(name=f"b{i}")
    return fluid.layers.fc(x, size, act="tanh", param_attr=weight, bias_attr=bias)


def build() -> tuple[fluid.Program, fluid.Program, fluid.framework.Variable]:
    """(main, startup, loss) of a net whose three weights are drawn from three distributions, each of its own shape."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 11
    kinds = fluid.initializer.Xavier(), fluid.initializer.Normal(0, 0.1), fluid.initializer.TruncatedNormal(0, 0.1)
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 7], "float32")
        for i, kind in enumerate(kinds):
            x = layer(x, i, 5 + i, kind)
        loss = fluid.layers.mean(x)
        fluid.optimizer.Adam(0.01).minimize(loss)
    return main, startup, loss


def values(scope: fluid.Scope) -> dict[str, np.ndarray]:
    return {name: np.array(scope.find_var(name).get_tensor()) for name in PARAMETERS}


def test_a_startup_program_compiles_nothing_and_a_first_step_once(compiled: Callable[[], list[str]]) -> None:
    main, startup, loss = build()
    exe, scope = fluid.Executor(), fluid.Scope()
    compiled()
    exe.run(startup, scope=scope)
    assert compiled() == []
    feed = {"x": np.ones((3, 7), np.float32)}
    exe.run(main, feed=feed, fetch_list=[loss], scope=scope)
    assert compiled() == ["jit(run)"]
    exe.run(main, feed=feed, fetch_list=[loss], scope=scope)
    assert compiled() == []


def test_values_that_a_user_sets_are_copied_without_a_kernel(compiled: Callable[[], list[str]]) -> None:
    main, startup, loss = build()
    exe, scope = fluid.Executor(), fluid.Scope()
    exe.run(startup, scope=scope)
    mine = np.full((7, 5), 0.5, np.float32)
    scope.find_var("w0").get_tensor().set(mine, fluid.CPUPlace())
    compiled()
    exe.run(main, feed={"x": np.ones((3, 7), np.float32)}, fetch_list=[loss], scope=scope)
    assert compiled() == ["jit(run)"]
    np.testing.assert_array_equal(mine, 0.5)


def test_startup_draws_the_same_values_in_both_modes() -> None:
    jitted, interpreted = fluid.Scope(), fluid.Scope()
    fluid.Executor().run(build()[1], scope=jitted)
    with interpret_mode():
        fluid.Executor().run(build()[1], scope=interpreted)
    for name, value in values(jitted).items():
        np.testing.assert_array_equal(value, values(interpreted)[name])
    assert len({value.flat[0] for value in values(jitted).values()} - {0}) == 3


def test_what_is_known_while_a_loop_is_traced_needs_no_kernel(compiled: Callable[[], list[str]]) -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        step, limit = fluid.layers.fill_constant([1], "int64", 0), fluid.layers.fill_constant([1], "int64", 4)
        total = fluid.layers.fill_constant([2], "float32", 0.0)
        running = fluid.layers.less_than(step, limit)
        loop = fluid.layers.While(running)
        with loop.block():
            fluid.layers.assign(fluid.layers.elementwise_add(total, fluid.data("x", [2], "float32")), total)
            fluid.layers.increment(step)
            fluid.layers.less_than(step, limit, cond=running)
    compiled()
    (got,) = fluid.Executor().run(main, feed={"x": np.array([1, 2], np.float32)}, fetch_list=[total])
    assert compiled() == ["jit(run)"]
    np.testing.assert_array_equal(got, [4, 8])


def test_a_program_cut_by_a_host_op_is_compiled_in_its_first_run_alone(net: Net, rng: np.random.Generator) -> None:
    """Its state is NumPy's at first, as a startup program leaves it, and then what the run before left."""
    net.parameter("w", np.ones((3, 2), np.float32))
    net.parameter("rate", np.array([0.1], np.float32))
    net.data("x", [3, 2])
    net.op("elementwise_mul", {"X": ["x"], "Y": ["w"]}, "product")
    net.op("greater_than", {"X": ["product"], "Y": ["w"]}, "larger")
    net.op("where_index", {"Condition": ["larger"]}, "places")
    net.op("gather_nd", {"X": ["product"], "Index": ["places"]}, "chosen")
    net.op("sgd", {"Param": ["w"], "Grad": ["product"], "LearningRate": ["rate"]}, "w", slot="ParamOut")
    x = 2 + rng.random((3, 2)).astype(np.float32)
    w, counts = np.ones((3, 2), np.float32), []
    for _ in range(3):
        (chosen,) = net.run({"x": x}, ["chosen"])
        np.testing.assert_allclose(chosen, (x * w).ravel(), rtol=1e-5)
        w = w - 0.1 * x * w
        np.testing.assert_allclose(net.get("w"), w, rtol=1e-5)
        counts.append(net.compilations())
    assert counts == counts[:1] * 3


def test_constants_of_a_step_are_no_compilations_of_their_own(compiled: Callable[[], list[str]]) -> None:
    """Nor those too large to be folded further; the shape is one that no other test fills."""
    main = fluid.Program()
    with fluid.program_guard(main):
        x = fluid.data("x", [31, 37], "float32")
        y = fluid.layers.elementwise_add(x, fluid.layers.fill_constant([31, 37], "float32", 3.0))
    exe = fluid.Executor(fluid.CPUPlace())
    compiled()
    (found,) = exe.run(main, feed={"x": np.ones((31, 37), "float32")}, fetch_list=[y])
    np.testing.assert_array_equal(found, np.full((31, 37), 4.0, "float32"))
    assert len(compiled()) == 1
