"""Whether an installation works."""

from __future__ import annotations

import numpy as np

import fluidjax as fluid
from fluidjax.places import Place

__all__ = ["run_check"]


def run_check() -> None:
    """Train a small network for a few steps on every kind of device at hand, and say how it went.

    Raises RuntimeError when the loss does not fall.
    """
    places: list[Place] = [fluid.CPUPlace()] + ([fluid.CUDAPlace(0)] if fluid.is_compiled_with_cuda() else [])
    for place in places:
        first, last = _train(place)
        if not last < first:
            raise RuntimeError(
                f"run_check: on {place} the loss went from {first} to {last} in ten steps. Expected it to fall. "
                "Reinstall jax and jaxlib for this device, and report it if that does not help."
            )
        print(f"fluidjax works on {place}: the loss fell from {first:.4f} to {last:.4f} in ten steps.")


def _train(place: Place) -> tuple[float, float]:
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None, 4])
        y = fluid.data("y", [None, 1])
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(x, 1) - y))
        fluid.optimizer.SGD(0.1).minimize(loss)
        executor = fluid.Executor(place)
        executor.run(startup)
        data = np.random.default_rng(0).normal(size=(32, 5)).astype("float32")
        feed = {"x": data[:, :4], "y": data[:, 4:]}
        losses = [float(executor.run(main, feed=feed, fetch_list=[loss])[0].item()) for _ in range(10)]
    return losses[0], losses[-1]
