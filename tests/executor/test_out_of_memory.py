"""A step without memory: it is refused before it takes the state over, or else the user is told what is lost."""

import os
import subprocess
import sys

import pytest

STEP = """
import resource
import time
import numpy as np
import fluidjax as fluid
from fluidjax.execution.executables.executable import Executable

x = fluid.data("x", [None, 1], "float32")
h = fluid.layers.fc(x, 1, bias_attr=False)
table = fluid.layers.matmul(h, h, transpose_y=True)  # 64 MB of 4,000 rows
loss = fluid.layers.mean(fluid.layers.matmul(fluid.layers.softmax(table), h))
fluid.optimizer.Adam(0.1).minimize(loss)
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
feed = {"x": np.ones((4000, 1), "float32")}

def step():
    return exe.run(feed=feed, fetch_list=[loss])

for _ in range(3):
    step()
parameter = fluid.global_scope().find_var("fc_0.w_0").get_tensor()

def size():
    time.sleep(0.05)  # a thread of XLA may still be giving memory back
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()

def without_memory():
    used = min(size() for _ in range(5))
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**23, resource.RLIM_INFINITY))
    try:
        step()
    except RuntimeError as error:
        return " ".join([str(error), *error.__notes__])
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    raise AssertionError("the step found memory")

before = np.array(parameter)
told = without_memory()
assert "nothing ran" in told and " MB" in told, told
assert "[4000, 4000], 64.0 MB, of op " in told and "built at: <string>:" in told, told
np.testing.assert_array_equal(np.array(parameter), before)
step()
assert (np.array(parameter) != before).all()

Executable.reserve = lambda self: None  # as if others took the memory at that moment
told = without_memory()
assert "had taken the program's state over" in told and "startup program" in told, told
for use in (lambda: parameter[0], step):
    try:
        use()
    except fluid.core.EnforceNotMet as error:
        assert "nitialized" in str(error), error
    else:
        raise AssertionError("what is lost was found")
exe.run(fluid.default_startup_program())
assert np.isfinite(step()).all()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the memory as Linux does")
def test_a_settled_step_without_memory() -> None:
    environment = os.environ | {"FLAGS_use_system_allocator": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    done = subprocess.run([sys.executable, "-c", STEP], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
