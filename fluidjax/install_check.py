"""A check that an installation works."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from fluidjax import layers, unique_name
from fluidjax.base.places import CPUPlace, CUDAPlace, Place, is_compiled_with_cuda
from fluidjax.base.scope import Scope, scope_guard
from fluidjax.compiler import CompiledProgram
from fluidjax.dygraph import Layer, Linear
from fluidjax.executor import Executor
from fluidjax.framework import Program, Variable, cuda_places, program_guard
from fluidjax.initializer import Constant
from fluidjax.optimizer import SGD
from fluidjax.param_attr import ParamAttr

__all__ = ["run_check"]

_logger = logging.getLogger(__name__)


class SimpleLayer(Layer):
    """The sum of three linear combinations over the last axis, all with weights of 0.1.

    Args:
        input_size: size of that axis.
    """

    def __init__(self, input_size: int) -> None:
        super().__init__()
        self._linear1 = Linear(input_size, 3, param_attr=ParamAttr(initializer=Constant(0.1)))

    def forward(self, inputs: Variable) -> Variable:
        """[..., input_size] -> [1]."""
        return layers.reduce_sum(self._linear1(inputs))


def run_check() -> None:
    """Train a small network for a few steps on each kind of device available, then on several together; report success.

    Without accelerators, two CPU places stand in for several devices. A failure on several devices is only a warning.
    Raises RuntimeError if the loss does not decrease on a single device.
    """
    print("Running Verify Fluid Program ... ")
    for place in [CPUPlace(), *([CUDAPlace(0)] if is_compiled_with_cuda() else [])]:
        _check(str(place), [place])
    print("Your Paddle Fluid works well on SINGLE GPU or CPU.")
    several: list[Place] = [*cuda_places()] if is_compiled_with_cuda() else [CPUPlace(), CPUPlace()]
    try:
        _check(f"{len(several)} devices", several)
    except Exception as error:
        _logger.warning("run_check: training on %d devices together failed: %s", len(several), error)
        print("Your Paddle Fluid is installed successfully ONLY for SINGLE GPU or CPU!")
        return
    print("Your Paddle Fluid works well on MUTIPLE GPU or CPU.")
    print("Your Paddle Fluid is installed successfully! Let's start deep Learning with Paddle Fluid now")


def _check(where: str, places: list[Place]) -> None:
    first, last = _train(places)
    if not last < first:
        raise RuntimeError(
            f"run_check: on {where} the loss went from {first} to {last} in ten steps. Expected it to fall. "
            "Reinstall jax and jaxlib for this device, and report it if that does not help."
        )
    print(f"fluidjax works on {where}: the loss fell from {first:.4f} to {last:.4f} in ten steps.")


def _train(places: list[Place]) -> tuple[float, float]:
    main, startup = Program(), Program()
    with program_guard(main, startup), unique_name.guard(), scope_guard(Scope()):
        loss = layers.mean(SimpleLayer(2)(layers.data("inp", [2, 2])))
        SGD(0.01).minimize(loss)
        executor = Executor(places[0])
        executor.run(startup)
        program: Any = main
        if len(places) > 1:
            program = CompiledProgram(main).with_data_parallel(loss_name=loss.name, places=places)
        feed = {"inp": np.array([[[1, 2], [3, 4]]] * len(places), "float32")}
        losses = [executor.run(program, feed=feed, fetch_list=[loss])[0].mean().item() for _ in range(10)]
    return losses[0], losses[-1]
