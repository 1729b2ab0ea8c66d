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
