"""Whether an installation works."""

from __future__ import annotations

import numpy as np

from fluidjax import layers, unique_name
from fluidjax.base.places import CPUPlace, CUDAPlace, Place, is_compiled_with_cuda
from fluidjax.base.scope import Scope, scope_guard
from fluidjax.data import data
from fluidjax.executor import Executor
from fluidjax.framework import Program, program_guard
from fluidjax.optimizer import SGD

__all__ = ["run_check"]


def run_check() -> None:
    """Train a small network for a few steps on every kind of device at hand, and say how it went.

    Raises RuntimeError when the loss does not fall.
    """
    places: list[Place] = [CPUPlace()] + ([CUDAPlace(0)] if is_compiled_with_cuda() else [])
    for place in places:
        first, last = _train(place)
        if not last < first:
            raise RuntimeError(
                f"run_check: on {place} the loss went from {first} to {last} in ten steps. Expected it to fall. "
                "Reinstall jax and jaxlib for this device, and report it if that does not help."
            )
        print(f"fluidjax works on {place}: the loss fell from {first:.4f} to {last:.4f} in ten steps.")


def _train(place: Place) -> tuple[float, float]:
    main, startup = Program(), Program()
    main.random_seed = startup.random_seed = 1
    with program_guard(main, startup), unique_name.guard(), scope_guard(Scope()):
        x = data("x", [None, 4])
        y = data("y", [None, 1])
        loss = layers.mean(layers.square(layers.fc(x, 1) - y))
        SGD(0.1).minimize(loss)
        executor = Executor(place)
        executor.run(startup)
        values = np.random.default_rng(0).normal(size=(32, 5)).astype("float32")
        feed = {"x": values[:, :4], "y": values[:, 4:]}
        losses = [float(executor.run(main, feed=feed, fetch_list=[loss])[0].item()) for _ in range(10)]
    return losses[0], losses[-1]
