"""A step in a forked process says at once that it cannot be."""

import os
import subprocess
import sys
from pathlib import Path

BEFORE = """
import os, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
import fluidjax as fluid
x = fluid.data("x", [2, 2], "float32")
y = fluid.layers.scale(x, 2.0)
def step():
    exe = fluid.Executor(fluid.CPUPlace())
    return exe.run(feed={"x": np.ones((2, 2), np.float32)}, fetch_list=[y])[0].sum()
"""
CHILD = """
if os.fork() == 0:
    try:
        print(step(), flush=True)
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""


def output(code: str) -> str:
    environment = dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2]))
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_step_in_a_fork_is_refused():
    shown = output(BEFORE + "step()\n" + CHILD)
    assert "was forked from one" in shown and "expected:" in shown and "what to do:" in shown


def test_a_fork_before_the_first_step_works():
    assert output(BEFORE + CHILD) == "8.0\n"


BESIDE = """
import threading
from fluidjax.execution.executables import background
begun, go = threading.Event(), threading.Event()
background.submit(lambda: (begun.set(), go.wait()))
begun.wait()
if os.fork() == 0:
    background.submit(lambda: print("done", flush=True), lasting=True)
    sys.exit()
os.wait()
go.set()
"""


def test_a_fork_ends_without_the_thread_that_works_beside():
    assert output(BEFORE + BESIDE) == "done\n"
