"""A promised step is run once, whatever a signal's handler does at any call of running it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.eager.recorded.pending import recorder
from fluidjax.eager.whole import fed, frames, running, stand_ins, together
from tests.dygraph.test_promised import Net

dg = fluid.dygraph
FILES = frozenset(module.__file__ for module in (fed, frames, running, stand_ins, together))
LEARNING, PLACES, AFTER = 24, 25, 8  # there are fewer places
Handler = Callable[[Any], None]


class Training:
    """Steps of a net on changing data; ``looks``: the loss is read before the backward pass too."""

    def __init__(self, looks: bool) -> None:
        self.looks = looks
        self.net = Net()
        trained = [*self.net.a.parameters(), *self.net.b.parameters()]
        self.optimizer = fluid.optimizer.Momentum(0.05, 0.9, parameter_list=trained)
        self.losses: list[Any] = []

    def begin(self) -> None:
        x = np.sin(np.arange(12, dtype="float32") * len(self.losses)).reshape(4, 3)
        self.losses.append(self.net(dg.to_variable(x)))
        if self.looks:
            self.losses[-1].numpy()
        self.losses[-1].backward()
        self.optimizer.minimize(self.losses[-1])
        self.net.clear_gradients()

    def step(self) -> None:
        self.begin()
        self.losses[-1].numpy()
        recorder.blocks.wait()

    def left(self) -> list[Any]:
        return [var.numpy().tolist() for var in (*self.losses, *self.net.parameters())]


def at_call(number: int, handler: Callable[[], None]) -> Callable[[Any, str, Any], None]:
    """A profile function that runs a handler at one of the places where Python does: functions begin, C's return."""
    left = [number]

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename in FILES:
            left[0] -= 1
            if left[0] == -1:
                sys.setprofile(None)
                handler()

    return profile


def interrupted(training: Training) -> None:
    raise KeyboardInterrupt


def timed_out(training: Training) -> None:
    raise TimeoutError


def looks(training: Training) -> None:
    training.losses[-1].numpy()


def looks_at_parameters(training: Training) -> None:
    training.net.parameters()[0].numpy()


def trains_on(training: Training) -> None:
    training.step()


HANDLERS = (interrupted, timed_out, looks, looks_at_parameters, trains_on)


@pytest.mark.usefixtures("compiled_well")
@pytest.mark.parametrize("looks_ahead", [False, True])
@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.__name__)
def test_a_step_runs_once(handler: Handler, looks_ahead: bool) -> None:
    with dg.guard():
        training, came, promised = Training(looks_ahead), 0, 0
        for _ in range(LEARNING):
            training.step()
        for n in range(PLACES):
            training.begin()
            promised += recorder.promised is not None
            loss = training.losses[-1]
            sys.setprofile(at_call(n, lambda: handler(training)))
            try:
                loss.numpy()
            except (KeyboardInterrupt, TimeoutError):
                came += 1
            finally:
                sys.setprofile(None)
            loss.numpy()
            for _ in range(AFTER):
                training.step()
        found, count = training.left(), len(training.losses)
        undisturbed = Training(looks_ahead)
        for _ in range(count):
            undisturbed.step()
        assert found == undisturbed.left()
        assert promised > PLACES // 2
        assert came >= 6 or handler not in (interrupted, timed_out)
