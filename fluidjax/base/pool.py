"""The pool of a GPU's memory: what Fluid's flags ask of it, passed on to jax.

Fluid takes a first chunk when a GPU is first used, and more as needed, leaving 5 % free; jax takes three quarters when
it starts, and never more. Where a flag or a predictor's config says something about the pool, jax is told before it
starts to grow like Fluid's, and the first chunk is allocated and released once: jax's allocator keeps what it has got.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import warnings
from collections.abc import Callable, MutableMapping

import jax
import jax.numpy as jnp
from jax._src.xla_bridge import backends_are_initialized

from fluidjax.base.errors import explain

# jax reads these when it starts. Of either name of the fraction it takes only one.
_GROWING = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_CLIENT_MEM_FRACTION": "0.95"}
_OLDER_NAME = "XLA_PYTHON_CLIENT_MEM_FRACTION"

_first: Callable[[int], int] | None = None


@functools.cache
def may_accelerate() -> bool:
    """Whether JAX has a plugin for accelerators: known without starting XLA, after which a process cannot fork."""
    return any(importlib.util.find_spec(plugin) for plugin in ("jax_plugins", "libtpu"))


def ask(first: Callable[[int], int] | None, flag: str = "", environment: MutableMapping[str, str] = os.environ) -> None:
    """Let the pools of GPUs grow; a `first` chunk, its bytes by those of the whole pool, is taken at first use.

    The variables by which jax itself is configured win. Once jax has started, nothing changes, and a `flag` that comes
    too late is warned about.
    """
    global _first
    if not may_accelerate():
        return
    if backends_are_initialized():
        if flag and any(device.platform == "gpu" for device in jax.local_devices()):
            warnings.warn(_late(flag), stacklevel=4)
        return
    for name, value in _GROWING.items():
        if name != "XLA_CLIENT_MEM_FRACTION" or _OLDER_NAME not in environment:
            environment.setdefault(name, value)
    _first = first


def _late(flag: str) -> str:
    return explain(
        f"{flag} comes too late: jax has started, and its pool of GPU memory stays as it is",
        "the flag before the first place, executor or guard",
        "the flag after it",
        f"set {flag} in the environment, or call set_flags at the beginning of the script",
    )


def limit(device: jax.Device) -> int:
    """The bytes that jax may take of a device; 0 where it does not say."""
    return (device.memory_stats() or {}).get("bytes_limit", 0)


@functools.cache
def reserve(device: jax.Device) -> None:
    """Take the first chunk of a GPU, once. Warns where there is not as much left; the pool grows without it."""
    if _first is None or device.platform != "gpu":
        return
    chunk = _first(limit(device))
    try:
        _take(device, chunk)
    except (RuntimeError, ValueError) as error:
        said = str(error).splitlines()[0]
        text = explain(
            f"the first chunk of memory could not be taken on {device}",
            f"{chunk:,} bytes left of {limit(device):,}",
            said,
            "ask for less by FLAGS_fraction_of_gpu_memory_to_use or FLAGS_initial_gpu_memory_in_mb",
        )
        warnings.warn(text, stacklevel=2)


def _take(device: jax.Device, chunk: int) -> None:
    """Allocate and release so many bytes, in rows of a megabyte."""
    jnp.zeros((chunk >> 20, 1 << 20), jnp.uint8, device=device).block_until_ready().delete()
