"""Ctrl-C in an eager loop, as in a notebook: at any moment of a step, and the network trains on afterwards."""

import random
import signal
from collections.abc import Iterator

import numpy as np
import pytest

import fluidjax as fluid
from tests.conftest import seed_of

# An interrupt that arrives in a finalizer is printed and dropped, as Python has it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def alarm() -> Iterator[None]:
    """SIGALRM raises as Ctrl-C does."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("looks", [False, True])
def test_training_goes_on_after_each_interrupt(alarm, looks):
    draw = random.Random(seed_of("test_training_goes_on_after_each_interrupt"))
    data = np.ones((2, 4), np.float32)
    with fluid.dygraph.guard():
        net = fluid.dygraph.Linear(4, 3)
        optimizer = fluid.optimizer.Adam(0.001, parameter_list=net.parameters())

        def step() -> float:
            loss = fluid.layers.mean(net(fluid.dygraph.to_variable(data)))
            if looks:
                loss.numpy()
            loss.backward()
            optimizer.minimize(loss)
            net.clear_gradients()
            return float(loss.numpy()[0])

        for _ in range(20):
            before = step()
        interrupts = 0
        for _ in range(200):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-5, 2e-3))
                    for _ in range(30):
                        step()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupts += 1
            now = step()
            assert now < before, "a step after the interrupt computed nothing new"
            before = now
            assert all(np.isfinite(p.numpy()).all() for p in net.parameters())
    assert interrupts > 100
