"""Handlers of signals that arrive in the midst of a step."""

import os
import subprocess
import sys

import pytest

# How many of the threads that a first run in either mode starts without Python take a signal.
TAKING = """
import glob, os, signal, sys, threading
import numpy as np
import fluidjax as fluid

before = set(os.listdir("/proc/self/task"))
if sys.argv[1] == "eager":
    with fluid.dygraph.guard(fluid.CPUPlace()):
        print(fluid.dygraph.Linear(4, 4)(fluid.dygraph.to_variable(np.ones((2, 4), "float32"))).numpy().shape)
else:
    x = fluid.data("x", [2, 3])
    exe = fluid.Executor(fluid.CPUPlace())
    print(exe.run(feed={"x": np.ones((2, 3), "float32")}, fetch_list=[fluid.layers.scale(x, 2.0)])[0].shape)
ours = {str(thread.native_id) for thread in threading.enumerate()}
others = taking = 0
for path in glob.glob("/proc/self/task/*/status"):
    blocked = next(int(line.split()[1], 16) for line in open(path) if line.startswith("SigBlk:"))
    if path.split("/")[4] not in before | ours:
        others += 1
        taking += not blocked >> signal.SIGALRM - 1 & 1
print(others > 0, taking, signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""

# A step of a product that oneDNN computes, on one processor, as signals arrive.
ALARMED = """
import os, signal, time
import numpy as np
import fluidjax as fluid

os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
x, y = fluid.data("x", [512, 128]), fluid.data("y", [512, 5000])
total = fluid.layers.reduce_sum(fluid.layers.matmul(x, y, transpose_x=True))
exe = fluid.Executor(fluid.CPUPlace())
feed = {"x": np.ones((512, 128), "float32"), "y": np.ones((512, 5000), "float32")}
seen, rows = [0], []
for timer, number in ((signal.ITIMER_REAL, signal.SIGALRM), (signal.ITIMER_PROF, signal.SIGPROF)):
    signal.signal(number, lambda number, frame: seen.__setitem__(0, seen[0] + 1))
    signal.setitimer(timer, 0.001, 0.001)
end = time.process_time() + 2.0
while time.process_time() < end:
    rows.append(np.zeros(len(rows) % 700))
    assert exe.run(feed=feed, fetch_list=[total])[0] == 512 * 128 * 5000
print(seen[0] > 100)
os._exit(0)
"""


def _said(script, *arguments):
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="reads which signals a thread blocks from /proc")
@pytest.mark.parametrize("mode", ["static", "eager"])
def test_threads_of_xla_take_no_signals(mode):
    assert _said(TAKING, mode)[-1] == "True 0 set()"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="chooses a processor as Linux does")
def test_signals_within_a_step_leave_memory_alone():
    assert _said(ALARMED) == ["True"]
