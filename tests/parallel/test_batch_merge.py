"""``multi_batch_merge_pass``: one update by the mean gradient of several batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import layers

REPEATS, ROWS = 2, 4


def batches(count: int = 8) -> list[tuple[np.ndarray, np.ndarray]]:
    draw = np.random.RandomState(0)
    return [(draw.rand(ROWS, 3).astype("float32"), draw.rand(ROWS, 1).astype("float32")) for _ in range(count)]


def fixed(name: str, *shape: int) -> fluid.ParamAttr:
    value = np.linspace(-1, 1, int(np.prod(shape))).reshape(shape).astype("float32")
    return fluid.ParamAttr(name, initializer=fluid.initializer.NumpyArrayInitializer(value))


class Job:
    """A network that learns with Momentum, decay and a clip from a reader in its program, or from feeds."""

    def __init__(self, devices: int = 1, repeats: Any = REPEATS, *, reads: bool = True, norm: bool = False):
        self.main, startup, self.scope = fluid.Program(), fluid.Program(), fluid.Scope()
        with fluid.unique_name.guard(), fluid.program_guard(self.main, startup):
            x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 1])
            self.loader = fluid.io.DataLoader.from_generator([x, y], 8, iterable=False) if reads else None
            hidden = layers.fc(x, 4, act="tanh", param_attr=fixed("w0", 3, 4))
            if norm:
                hidden = layers.batch_norm(hidden, moving_mean_name="mean", moving_variance_name="variance")
            out = layers.fc(hidden, 1, param_attr=fixed("w1", 4, 1))
            self.loss = layers.mean(layers.square_error_cost(out, y))
            decay, clip = fluid.regularizer.L2Decay(0.01), fluid.clip.GradientClipByGlobalNorm(0.5)
            rate = layers.exponential_decay(0.1, 1, 0.9)
            fluid.optimizer.Momentum(rate, 0.9, regularization=decay, grad_clip=clip).minimize(self.loss)
        self.executor = fluid.Executor(fluid.CPUPlace())
        self.executor.run(startup, scope=self.scope)
        build = fluid.BuildStrategy()
        if repeats is not None:
            one = build._finalize_strategy_and_create_passes().insert_pass(0, "multi_batch_merge_pass")
            if repeats:
                one.set("num_repeats", repeats)
        self.program = fluid.CompiledProgram(self.main).with_data_parallel(
            self.loss.name, build_strategy=build, places=fluid.cpu_places(devices)
        )

    def start(self, found: list[Any]) -> None:
        assert self.loader is not None
        self.loader.set_batch_generator(lambda: iter(found))
        self.loader.start()

    def run(self, feed: Any = None, fetches: Any = None, **options: Any) -> list[Any]:
        return self.executor.run(self.program, feed, fetches or [self.loss], scope=self.scope, **options)

    def value(self, name: str) -> np.ndarray:
        return np.array(self.scope.find_var(name).get_tensor())

    def set(self, name: str, value: np.ndarray) -> None:
        self.scope.var(name).get_tensor().set(value, fluid.CPUPlace())


def joined(found: list[Any], count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """As many batches each as one."""
    for at in range(0, len(found), count):
        yield (
            np.concatenate([x for x, _ in found[at : at + count]]),
            np.concatenate([y for _, y in found[at : at + count]]),
        )


@pytest.mark.parametrize("devices", [1, 2])
def test_batches_of_the_reader_make_one_update(devices: int) -> None:
    """Each update is that of all batches of the step as one, and reads as many as there are devices and repetitions."""
    merged, whole = Job(devices), Job(repeats=None, reads=False)
    merged.start(batches())
    for x, y in joined(batches(), REPEATS * devices):
        merged.run()
        whole.run({"x": x, "y": y})
        for name in ("w0", "w1"):
            np.testing.assert_allclose(merged.value(name), whole.value(name), rtol=1e-5, atol=1e-6)
    with pytest.raises(fluid.core.EOFException):
        merged.run()


def test_a_fetch_is_that_of_the_last_batch_and_a_gradient_the_mean() -> None:
    merged, alone = Job(), Job(repeats=None, reads=False)
    merged.start(batches())
    loss, x, gradient = merged.run(fetches=[merged.loss, "x", "w1@GRAD"])
    found = [alone.run({"x": x, "y": y}, [alone.loss, "w1@GRAD"]) for x, y in batches()[1:2]]
    first = Job(repeats=None, reads=False).run(dict(zip("xy", batches()[0], strict=True)), ["w1@GRAD"])[0]
    assert np.array_equal(x, batches()[1][0])
    np.testing.assert_allclose(loss, found[0][0], rtol=1e-6)
    np.testing.assert_allclose(gradient, (first + found[0][1]) / 2, rtol=1e-5, atol=1e-7)


def test_what_is_fed_is_the_same_for_all_repetitions() -> None:
    merged, plain = Job(reads=False), Job(repeats=None, reads=False)
    for x, y in batches(3):
        feed = {"x": x, "y": y}
        np.testing.assert_allclose(merged.run(feed)[0], plain.run(feed)[0], rtol=1e-6)
    np.testing.assert_allclose(merged.value("w0"), plain.value("w0"), rtol=1e-6, atol=1e-7)


def test_each_repetition_has_running_statistics_of_its_own() -> None:
    """As in Fluid the script gives them their first values, and those of the program stay."""
    job = Job(norm=True)
    for count in range(REPEATS):
        job.set(f"mean.repeat.{count}", np.zeros(4, "float32"))
        job.set(f"variance.repeat.{count}", np.ones(4, "float32"))
    job.start(batches())
    job.run()
    weights = np.linspace(-1, 1, 12).reshape(3, 4).astype("float32")
    for count, (x, _) in enumerate(batches()[:REPEATS]):
        hidden = np.tanh(x @ weights)
        np.testing.assert_allclose(job.value(f"mean.repeat.{count}"), 0.1 * hidden.mean(0), rtol=1e-5, atol=1e-7)
        expected = 0.9 + 0.1 * hidden.var(0)
        np.testing.assert_allclose(job.value(f"variance.repeat.{count}"), expected, rtol=1e-5)
    assert not job.value("mean").any() and (job.value("variance") == 1).all()


@pytest.mark.parametrize(("repeats", "message"), [(0, "Required attribute num_repeats"), (-1, "a whole number from 1")])
def test_a_number_of_repetitions_is_needed(repeats: int, message: str) -> None:
    job = Job(repeats=repeats)
    job.start(batches())
    with pytest.raises(fluid.core.EnforceNotMet, match=message):
        job.run()


def test_the_pass_changes_a_graph() -> None:
    """Ops and names as in Paddle 1.8.5; the program itself stays as it is."""
    job = Job(repeats=None)
    before = [op.type for op in job.main.global_block().ops]
    graph = fluid.core.Graph(job.main.desc)
    one = fluid.core.get_pass("multi_batch_merge_pass")
    one.set("num_repeats", 3)
    ops = one.apply(graph)._as_program().global_block().ops
    types = [op.type for op in ops]
    assert [op.type for op in job.main.global_block().ops] == before
    for kind in ("read", "tanh", "tanh_grad", "mul_grad"):
        assert types.count(kind) == 3 * before.count(kind)
    (mean,) = [op for op in ops if op.output_arg_names == ["w0@GRAD"] and op.type == "sum"][:1]
    assert mean.input("X") == [f"w0@GRAD.repeat.{i}" for i in range(3)]
    scale = ops[ops.index(mean) + 1]
    assert (scale.type, scale.attr("op_role_var")) == ("scale", ["w0", "w0@GRAD"])
    assert scale.attr("scale") == pytest.approx(1 / 3)
