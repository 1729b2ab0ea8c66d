"""Freed memory is kept, so that a step's scratch space need not be mapped anew."""

import os
import platform
import subprocess
import sys

import jax
import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.execution.executables import background
from fluidjax.execution.executables.executable import Executable
from fluidjax.execution.steps import compiled
from lowering.host_arrays import zeros

FAULTS = """
import resource
import numpy as np
import fluidjax as fluid

fluid.Executor(fluid.CPUPlace())
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = np.empty(80_000_000, np.uint8)
    block[::4096] = 1
    del block
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(**environment: str) -> int:
    """Page faults of writing to 80 MB that were allocated and freed twice before."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    done = subprocess.run([sys.executable, "-c", FAULTS], env=kept | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


LARGE = """
import numpy as np
import fluidjax as fluid

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 >> 20

fluid.Executor(fluid.CPUPlace())
before = resident()
block = np.empty(800 << 20, np.uint8)
block[::4096] = 1
del block
print(resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="tunes glibc's malloc")
def test_no_more_than_half_a_gigabyte_is_kept() -> None:
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True)
    assert int(done.stdout) < 520, done.stderr


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="tunes glibc's malloc")
def test_freed_memory_is_kept() -> None:
    assert page_faults() < 10


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="tunes glibc's malloc")
@pytest.mark.parametrize("environment", [{"FLAGS_use_system_allocator": "1"}, {"MALLOC_TOP_PAD_": "0"}])
def test_the_user_has_the_last_word(environment: dict[str, str]) -> None:
    assert page_faults(**environment) > 10


def test_large_feeds_are_on_the_device_before_a_step_that_needs_memory() -> None:
    """A step that waited for them would run in the thread that copies them, whose malloc arena kept the memory."""
    memory, small = zeros([1 + (1 << 18)], np.float32), np.ones(4, np.float32)
    large, aligned = memory[1:], memory[:-1]
    large[:] = 1
    function = jax.jit(lambda x: (jax.numpy.sort(x) * 2).sum())
    executable = Executable(function.lower(large).compile())
    assert executable.scratch >= large.nbytes, "the first call is one of them"
    (one, (other,), left, in_place) = executable.arrived((large, (large,), small, aligned))
    assert isinstance(one, jax.Array) and isinstance(other, jax.Array) and left is small
    assert in_place is aligned, "XLA computes on it where it is, in the call"
    large[:] = 0  # the user's array, changed after the run
    assert float(executable.call(one)) == float(executable.call(other)) == 2.0 * (1 << 18)


def test_what_a_compilation_left_free_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, beside the runs, however many there are; nothing for a short compilation, beside which it would matter."""
    given: list[str] = []
    monkeypatch.setattr(compiled, "give_back_freed_memory", lambda: given.append("back"))
    for long, expected in ((1e9, 0), (0.0, 1)):
        monkeypatch.setattr(compiled, "_LONG", long)
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()):
            y = fluid.layers.scale(fluid.data("x", [2, 2], "float32"), 2.0)
        for _ in range(3):
            fluid.Executor(fluid.CPUPlace()).run(main, feed={"x": np.ones((2, 2), np.float32)}, fetch_list=[y])
        background.wait()
        assert len(given) == expected


PIECES = """
import fluidjax as fluid
from fluidjax.execution.executables.allocator import give_back_freed_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 >> 20

fluid.Executor(fluid.CPUPlace())
pieces = [bytes(4000) for _ in range(50_000)]
pieces = pieces[::100]
before = resident()
assert give_back_freed_memory()
print(before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="tunes glibc's malloc")
def test_memory_between_what_is_in_use_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", PIECES], capture_output=True, text=True)
    assert int(done.stdout) > 100, done.stderr
