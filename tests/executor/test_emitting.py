"""XLA's thread that emits kernels gives way to those that compile them; no other thread does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fluidjax.execution import emitting

PROGRAM = """
import os
import numpy as np
import fluidjax as fluid

def worked():
    threads = os.listdir("/proc/self/task")
    return {int(t): int(open(f"/proc/self/task/{t}/schedstat").read().split()[0]) for t in threads}

def lower():
    # Those that LLVM makes to look symbols up inherit theirs.
    usual, threads = os.getpriority(os.PRIO_PROCESS, 0), worked()
    names = {t: open(f"/proc/self/task/{t}/comm").read() for t in threads}
    return {t for t in threads if os.getpriority(os.PRIO_PROCESS, t) > usual and "llvm-worker" not in names[t]}

def compile(depth):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        x = y = fluid.data("x", [8, 8], "float32")
        for _ in range(depth):
            y = fluid.layers.softmax(fluid.layers.tanh(fluid.layers.matmul(y, x)))
    return lambda: exe.run(main, feed={"x": np.ones((8, 8), np.float32)}, fetch_list=[y])

exe = fluid.Executor(fluid.CPUPlace())
for depth in range(3, 9):
    run = compile(depth)
    run()
    if lower():
        break
(emits,) = lower()
before = worked()
for _ in range(50):
    run()
assert worked()[emits] == before[emits], "it takes part in runs"
compile(9)()
after = worked()
assert after[emits] > before[emits], "it takes no part in compilations"
assert lower() == {emits}
print("ok")
"""


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="asks Linux what threads do")
def test_the_thread_that_emits_is_the_only_one_set_back() -> None:
    """It works in compilations alone; those that compile are as before, though it made them."""
    fresh = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    fresh["FLAGS_compilation_cache_dir"] = ""
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=fresh, capture_output=True, text=True)
    assert done.stdout == "ok\n", done.stderr


def test_the_thread_that_works_first_is_found() -> None:
    """Where it is clear which one that is, and early enough, or what compiles was not there before."""
    enough, long = emitting._ENOUGH, emitting._EARLY
    assert emitting._first({1: 0, 2: enough}, late=False) == 2
    assert emitting._first({1: 0, 2: enough - 1}, late=False) is None
    assert emitting._first({1: enough, 2: enough}, late=True) is None
    assert emitting._first({1: 0, 2: long + 1}, late=False) is None
    assert emitting._first({1: 0, 2: long + 1}, late=True) == 2
    assert emitting._first({}, late=True) is None


def test_nothing_is_looked_for_where_the_system_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emitting, "_found", emitting.threading.Event())
    monkeypatch.setattr(emitting.sys, "platform", "darwin")
    monkeypatch.setattr(emitting, "_worked", lambda: pytest.fail("threads were looked at"))
    with emitting.emitting_last():
        pass
    assert not emitting._found.is_set()
