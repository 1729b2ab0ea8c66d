"""Ops between convolutions run channels last on CPUs; what they compute is what it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.framework.view import program_view
from lowering.engine.maps import MapRunner
from lowering.engine.runner import Runner
from lowering.engine.x64 import with_x64

IMAGES = (2, 16, 6, 5)
INTO = "permutation=(0, 2, 3, 1)"


def convolved(x: Any, size: int = 3, **options: Any) -> Any:
    return fluid.layers.conv2d(x, 16, size, padding=size // 2, bias_attr=False, **options)


def block(x: Any) -> Any:
    """A block of a residual network."""
    short = fluid.layers.batch_norm(convolved(x), act="relu")
    deep = fluid.layers.batch_norm(convolved(short))
    return convolved(fluid.layers.elementwise_add(short, deep, act="leaky_relu"))


def written(build: Callable[[Any], Any], *, train: bool) -> tuple[fluid.Program, list[str]]:
    """A program with its gradients, and the names of what it computes."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        out = build(fluid.data("x", IMAGES))
        loss = fluid.layers.mean(fluid.layers.square(out))
        pairs = fluid.backward.append_backward(loss) if train else []
    return main, [loss.name, *(gradient.name for _, gradient in pairs)]


def drawn(main: fluid.Program, rng: np.random.Generator) -> dict[str, np.ndarray]:
    shapes = {p.name: p.shape for p in main.global_block().vars.values() if p.persistable}
    return {n: rng.uniform(0.2, 1.0, s).astype(np.float32) for n, s in {**shapes, "x": IMAGES}.items()}


def function(runner: type[Runner], main: fluid.Program, fetched: list[str]) -> Callable[..., list[Any]]:
    """The program as a function of its values by name."""
    view = program_view(main)

    def run(values: dict[str, Any]) -> list[Any]:
        env = runner(view, platform="cpu").run_block(0, dict(values))
        return [env[name] for name in fetched]

    return run


def test_losses_and_gradients_are_what_they_are_channels_first(rng: np.random.Generator) -> None:
    main, fetched = written(block, train=True)
    values = drawn(main, rng)
    ours, plain = (with_x64(jax.jit(function(r, main, fetched)), values) for r in (MapRunner, Runner))
    for name, value, expected in zip(fetched, ours, plain, strict=True):
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-4 * np.abs(expected).max(), err_msg=name)


@pytest.mark.parametrize(
    ("build", "count"),
    [
        (lambda x: fluid.layers.relu(convolved(x)), 1),
        (lambda x: fluid.layers.relu(fluid.layers.batch_norm(convolved(x))), 1),
        (lambda x: fluid.layers.relu6(fluid.layers.relu(convolved(x))), 2),
        (lambda x: fluid.layers.elementwise_add(convolved(x), x), 2),
        (lambda x: fluid.layers.relu(x), 0),
        (lambda x: fluid.layers.relu(convolved(x, 1)), 0),
        (lambda x: fluid.layers.relu(convolved(x, 5)), 0),
        (lambda x: fluid.layers.relu(convolved(x, groups=4)), 0),
        (lambda x: fluid.layers.relu(fluid.layers.pool2d(convolved(x), 2)), 0),
        (lambda x: fluid.layers.relu(fluid.layers.flatten(convolved(x))), 0),
        (lambda x: fluid.layers.elementwise_add(convolved(x), fluid.layers.reduce_sum(x, [2, 3], True)), 0),
    ],
)
def test_only_what_goes_by_elements_of_what_a_convolution_left_is_transposed(build: Any, count: int) -> None:
    main, fetched = written(build, train=False)
    values = drawn(main, np.random.default_rng(0))
    jaxpr = with_x64(jax.make_jaxpr(function(MapRunner, main, fetched)), values)
    assert str(jaxpr).count(INTO) == count


def test_a_step_of_an_executor_is_compiled_so(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(MapRunner, "_by_elements", lambda self, op, env: seen.append(op.type) or {})
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        out = fluid.layers.relu(convolved(fluid.data("x", IMAGES)))
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        exe.run(main, {"x": np.ones(IMAGES, np.float32)}, [out])
    assert seen == ["relu"]
