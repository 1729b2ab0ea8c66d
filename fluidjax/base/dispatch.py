"""On a CPU, a step is computed by the thread that asks for it."""

from __future__ import annotations

import os

import jax
from jax._src.xla_bridge import backends_are_initialized

from fluidjax.base.signals import take_on_a_stack_of_their_own

_in_time = False


def compute_in_the_calling_thread() -> bool:
    """Make XLA's CPU client compute in the calling thread, without Python's lock; returns whether it will.

    By default it hands a step to a thread of its own, for callers that have something else to do meanwhile. A run
    returns what it computed, and an eager step runs when somebody reads its loss, so they would only wait: for a small
    step, waking two threads takes as long as the step, and many times that where other processes want the cores.
    Several threads compute one step either way. Nothing changes where jax has computed before, or where the user sets
    JAX_CPU_ENABLE_ASYNC_DISPATCH.
    """
    global _in_time
    take_on_a_stack_of_their_own()  # a handler may be called in the midst of a step from now on
    if "JAX_CPU_ENABLE_ASYNC_DISPATCH" in os.environ:
        return False
    _in_time = _in_time or not backends_are_initialized()
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    return True


def returns_when_done() -> bool:
    """Whether a step on a CPU is known to be computed when the call returns, if what it is given is there already."""
    return _in_time
