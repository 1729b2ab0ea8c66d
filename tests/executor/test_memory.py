"""What a place says of its memory."""

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


def test_it_is_shown_as_a_table() -> None:
    found = memory.Memory(1_500_000, 2_000_000, 64_000_000)
    assert str(found) == "1.5 MB in use, 2.0 MB at most, of 64.0 MB"
    assert "<td>in use</td><td class=number>1.5 MB</td>" in found._repr_html_()
