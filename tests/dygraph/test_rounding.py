"""An eager step and the same step of a program: equal numbers, not always equal bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.base.mode import tracer_guard

dg, layers = fluid.dygraph, fluid.layers

OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda **kw: fluid.optimizer.SGD(0.1, **kw),
    "adam": lambda **kw: fluid.optimizer.Adam(0.01, **kw),
    "rmsprop": lambda **kw: fluid.optimizer.RMSProp(0.01, **kw),
}


class Net(dg.Layer):
    """A convolution, a batch norm and a map to one number per image."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = dg.Conv2D(1, 4, 3, padding=1)
        self.norm = dg.BatchNorm(4, act="relu")
        self.out = dg.Linear(4 * 36, 1)

    def forward(self, x: Any) -> Any:
        y = layers.reshape(self.norm(self.conv(x)), [-1, 4 * 36])
        return layers.mean(layers.square(self.out(y) - 1.0))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_eager_step_agrees_with_a_program(name: str, rng: np.random.Generator) -> None:
    """A program is compiled as a whole, eager ops run one by one, first on NumPy, so that some round differently:
    losses agree to 1e-5, not always to the bit."""
    images = rng.random((4, 2, 1, 6, 6), np.float32)
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 90
    with tracer_guard(None), fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        loss = Net()(fluid.data("x", [2, 1, 6, 6]))
        OPTIMIZERS[name]().minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        static = [float(exe.run(main, feed={"x": x}, fetch_list=[loss])[0][0]) for x in images]
    with dg.guard():
        fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 90
        net, eager = Net(), []
        optimizer = OPTIMIZERS[name](parameter_list=net.parameters())
        for x in images:
            loss = net(dg.to_variable(x))
            loss.backward()
            optimizer.minimize(loss)
            net.clear_gradients()
            eager.append(float(loss.numpy()[0]))
    np.testing.assert_allclose(eager, static, rtol=1e-5)
