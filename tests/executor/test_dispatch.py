"""Steps are computed by the thread that asks for them, unless the user says otherwise."""

import os
import subprocess
import sys

import pytest

THREADS = """
import threading
import jax
import numpy as np
import fluidjax as fluid

before = jax.config.read("jax_cpu_enable_async_dispatch")
with fluid.dygraph.guard(fluid.CPUPlace()):
    print(jax.config.read("jax_cpu_enable_async_dispatch"))
jax.config.update("jax_cpu_enable_async_dispatch", before)
exe = fluid.Executor(fluid.CPUPlace())
print(jax.config.read("jax_cpu_enable_async_dispatch"))
x = fluid.data("x", [400, 400], "float32")
y = x
for _ in range(40):
    y = fluid.layers.scale(fluid.layers.matmul(y, x), 1e-3)
total = fluid.layers.reduce_sum(y)
feed = {"x": np.ones((400, 400), "float32")}
exe.run(feed=feed, fetch_list=[total])
counted, done = 0, threading.Event()

def run():
    for _ in range(5):
        exe.run(feed=feed, fetch_list=[total])
    done.set()

threading.Thread(target=run).start()
while not done.wait(0.0005):
    counted += 1
print(counted)
"""


@pytest.mark.parametrize(("environment", "hands_over"), [({}, False), ({"JAX_CPU_ENABLE_ASYNC_DISPATCH": "1"}, True)])
def test_which_thread_computes(environment: dict[str, str], hands_over: bool) -> None:
    done = subprocess.run([sys.executable, "-c", THREADS], env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *asked, counted = done.stdout.split()
    assert asked == [str(hands_over)] * 2  # in eager mode, and of an executor
    assert int(counted) > 5  # other threads of Python go on while a step computes


ASKED_FIRST = """
from unittest import mock
import jax
from jax._src.xla_bridge import backends_are_initialized
import fluidjax as fluid
from fluidjax.base import places

place = fluid.CUDAPlace(0) if fluid.is_compiled_with_cuda() else fluid.CPUPlace()
print(backends_are_initialized())
with mock.patch.object(places, "may_accelerate", lambda: True):  # as with a plugin, but no device
    places._accelerators.cache_clear()
    print(fluid.is_compiled_with_cuda(), backends_are_initialized())
print(jax.config.read("jax_cpu_enable_async_dispatch"))
"""


def test_scripts_that_ask_for_accelerators_first_compute_so_too() -> None:
    """XLA starts when it is asked for its devices, and takes no setting after that."""
    environment = {k: v for k, v in os.environ.items() if k != "JAX_CPU_ENABLE_ASYNC_DISPATCH"}
    done = subprocess.run([sys.executable, "-c", ASKED_FIRST], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", "False", "True", "False"]
