"""What a place says of its memory."""

import subprocess
import sys

import jax.numpy as jnp

import fluidjax as fluid
from fluidjax import memory


def test_the_hosts_memory_follows_arrays() -> None:
    before = memory.of(fluid.CPUPlace())
    held = jnp.zeros((1 << 20,), jnp.float32)
    held.block_until_ready()
    during = memory.of()
    assert during.used - before.used >= held.nbytes
    assert 0 < during.used <= during.peak <= during.limit
    del held
    assert memory.of().used < during.used


def test_the_peak_is_not_that_of_the_process_that_started_this_one() -> None:
    asked = "from fluidjax import memory; print(memory.of().peak)"
    held = bytearray(1 << 29)
    held[::4096] = b"1" * (1 << 17)
    told = subprocess.run([sys.executable, "-W", "error", "-c", asked], capture_output=True, text=True, check=True)
    assert 0 < int(told.stdout) < len(held)


def test_it_is_shown_as_a_table() -> None:
    found = memory.Memory(1_500_000, 2_000_000, 64_000_000)
    assert str(found) == "1.5 MB in use, 2.0 MB at most, of 64.0 MB"
    assert "<td>in use</td><td class=number>1.5 MB</td>" in found._repr_html_()
