"""Places of two kinds in one process: the second CPU device stands in for an accelerator; started by ``physical``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import numpy as np

import fluidjax as fluid
from fluidjax.base import places
from fluidjax.base.flags import FLAGS
from fluidjax.eager.recorded.pending import recorder

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def check_places_of_two_kinds() -> None:
    """Eager and static runs stay at their places."""
    host, accelerator = jax.local_devices()[:2]
    patched = mock.patch.multiple(places, _accelerators=lambda: (accelerator,), may_accelerate=lambda: True)
    compiled = mock.patch.dict(FLAGS, FLAGS_eager_numpy=False)  # NumPy's arrays are on no device
    with patched, compiled:
        for place, device in ((None, accelerator), (fluid.CPUPlace(), host), (fluid.CUDAPlace(0), accelerator)):
            _eager(lambda p=place: fluid.dygraph.guard(p), device)  # type: ignore[misc]
        _static_in_a_guard(host, accelerator)


def _device(variable: Any) -> jax.Device:
    variable.numpy()
    array = variable._value.array
    return next(iter(getattr(array, "array", array).devices()))


def _eager(guard: Callable[[], Any], device: jax.Device) -> None:
    """Steps of training, op by op at first and as compiled blocks then, leave what they compute on the device."""
    before = recorder.blocks, jax.config.jax_default_device  # type: ignore[attr-defined]
    with guard():
        layer = fluid.dygraph.Linear(4, 2)
        adam = fluid.optimizer.Adam(0.1, parameter_list=layer.parameters())
        losses = []
        for _ in range(6):
            loss = fluid.layers.reduce_mean(layer(fluid.dygraph.to_variable(X)) ** 2)
            loss.backward()
            adam.minimize(loss)
            layer.clear_gradients()
            assert _device(loss) == device and _device(layer.weight) == device
            losses.append(float(loss.numpy()[0]))
            recorder.blocks.wait()
        assert losses[-1] < losses[0]
        unread = loss * 2
    assert float(unread.numpy()[0]) == 2 * losses[-1]
    assert (recorder.blocks, jax.config.jax_default_device) == before  # type: ignore[attr-defined]


def _static_in_a_guard(host: jax.Device, accelerator: jax.Device) -> None:
    """An Executor runs at its own place, whatever the guard's is."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.scope_guard(scope):
        loss = fluid.layers.reduce_mean(fluid.layers.fc(fluid.data("x", [None, 4]), 2, name="layer"))
        fluid.optimizer.SGD(0.1).minimize(loss)
    pairs = ((fluid.CPUPlace(), host), (fluid.CUDAPlace(0), accelerator))
    for (place, device), (other, _) in zip(pairs, reversed(pairs), strict=True):
        with fluid.dygraph.guard(other), fluid.scope_guard(scope):
            executor = fluid.Executor(place)
            executor.run(startup)
            for _ in range(2):
                executor.run(main, feed={"x": X}, fetch_list=[loss])
            weight = scope.find_var("layer.w_0").get_tensor()._array
            assert weight.devices() == {device}, (place, weight)
