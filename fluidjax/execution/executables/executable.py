"""One executable of XLA: it is called, written to a file, and loaded from one in another process."""

from __future__ import annotations

import contextlib
import math
import uuid
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

import jax
import numpy as np
from jax._src.config import persistent_cache_min_compile_time_secs
from jax.experimental import serialize_executable
from jaxlib.mlir.passmanager import PassManager
from jaxlib.xla_client import ArrayImpl

from fluidjax.base.signals import local_devices
from fluidjax.execution.executables.emitting import emitting_last
from fluidjax.execution.executables.levels import called, compiler_options
from fluidjax.execution.executables.options import compile_with
from lowering.host_arrays import used_in_place
from lowering.values import LoDArray

# A step that asks for less memory than this is not looked after: where even this is missing, nothing can run.
_LARGE = 2**20
_SORTS = frozenset({"sort", "top_k", "approx_top_k"})

# What goes into a file: the executable, the structures of its arguments and results, and what a call allocates, which
# XLA takes as long to find out as a sixteenth of loading it.
Content = tuple[tuple[bytes, Any, Any], int | None]


class Executable:
    """A function compiled for arguments of one form.

    Args:
        compiled: the function.
        pure: whether it calls nothing of one program: other programs may use it.
        whole: whether it has all that another process needs; one that was itself read from a file has not.
        waits: whether a call returns when all is computed. On several devices of one host it has to: steps that
            overtake each other would wait for each other's threads.

    Attributes:
        compiled, pure: as above.
        call: calls it.
    """

    def __init__(self, compiled: jax.stages.Compiled, *, pure: bool = True, whole: bool = False, waits: bool = False):
        self.compiled = compiled
        self.pure = pure
        self._whole = whole
        self._waits = waits
        self.call: Callable[..., Any] = compiled
        self._written: Content | None = None
        self._call_by(compiled)

    @staticmethod
    def of(
        traced: Any, *, whole: bool = False, waits: bool = False, options: dict[str, Any] | None = None
    ) -> Executable:
        """The executable that a trace (``jax.stages.Traced``) compiles to; ``options``: of XLA, if not the usual ones.

        An executable that jax finds in its own cache lacks its machine code when it is written again (jaxlib 0.10). So
        if it is wanted ``whole``, it is compiled under a name that no cache knows, and jax stores nothing under it.
        """
        lowered = traced.lower()
        options = compiler_options(traced.jaxpr, default_device().platform) if options is None else options
        _strip(lowered)
        pure = not traced.jaxpr.effects
        if not whole:
            return Executable(_compiled(lowered, options), pure=pure, waits=waits)
        _rename(lowered, f"jit_run_{uuid.uuid4().hex}")
        with persistent_cache_min_compile_time_secs(math.inf):
            compiled = _compiled(lowered, options)
        executable = Executable(compiled, pure=pure, whole=pure, waits=waits)
        if _sorts(traced.jaxpr):
            executable.write_early()
        return executable

    def settle(self) -> None:
        """After the first call: make ``call`` one that runs none of Python's own instructions in between."""
        self._call_by(getattr(self.compiled, "_call", None) or self.compiled)

    def reserve(self) -> None:
        """Raise RuntimeError if there is no memory for a call: XLA checks only after it has taken over the arguments.

        The block allocated and freed here is the one that the same malloc will give the call; no page is touched.
        """
        try:
            np.empty(self.scratch, np.uint8)
        except MemoryError:
            raise RuntimeError(
                f"out of memory: a step needs {self.scratch >> 20} MB beside its feeds and state; nothing ran\n"
                "  expected: the memory that the step's earlier runs had; received: a refusal of malloc. All variables"
                " are as they were before the step\n"
                "  to do: feed smaller batches, give the process more memory, or free what else it holds; then go on"
            ) from None

    def arrived(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """What a call is given; where it needs scratch memory, with large arrays of the host already on the device.

        XLA copies them in a thread of its own, and a step that waits for one runs there, on memory of that thread's
        malloc arena: each of XLA's threads would come to keep a step's scratch, besides what this thread keeps.
        """
        if not self.scratch:
            return given
        return tuple([v if _stays(v) else jax.tree_util.tree_map(_copied, v) for v in given])

    @cached_property
    def scratch(self) -> int:
        """Bytes that a call allocates beside its arguments, where these are many and the host's."""
        size = self.allocates if default_device().platform == "cpu" else None
        return size if size is not None and size >= _LARGE else 0

    @cached_property
    def allocates(self) -> int | None:
        """Bytes that a call allocates beyond its arguments and what it overwrites; None where XLA does not say."""
        stats: Any = self.compiled.memory_analysis()
        if stats is None:
            return None
        return int(stats.temp_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes)

    def _call_by(self, call: Callable[..., Any]) -> None:
        self.call = (lambda *arguments: jax.block_until_ready(call(*arguments))) if self._waits else call

    def content(self) -> Content:
        """The content that ``loaded`` takes; ValueError where something would be missing from it."""
        if not self._whole:
            raise ValueError("an executable that was read from a file or calls back into this process")
        written, self._written = self._written, None
        return written or (serialize_executable.serialize(self.compiled), self.allocates)

    def write_early(self) -> None:
        """Prepare ``content`` before the first call: XLA on CPUs cannot write a sort that has run (jaxlib 0.10)."""
        with contextlib.suppress(Exception):  # ``content`` tells what is wrong
            self._written = self.content()

    @staticmethod
    def loaded(content: Content, device: jax.Device | None = None) -> Executable:
        """The executable of ``content``, on the device that is jax's default now, or on another one.

        It is machine code: its writer is trusted.
        """
        serialized, allocates = content
        devices = [device or default_device()]
        compiled = serialize_executable.deserialize_and_load(*serialized, execution_devices=devices)
        executable = Executable(compiled)
        executable.allocates = allocates
        return executable


def _stays(value: Any) -> bool:
    """Whether a value is on the device, or of small arrays alone."""
    if type(value) is LoDArray:
        return all(type(leaf) is np.ndarray and leaf.nbytes < _LARGE for leaf in (value.data, *value.lod))
    return type(value) is ArrayImpl or (type(value) is np.ndarray and value.nbytes < _LARGE)


def _copied(leaf: Any) -> Any:
    """A large array of the host as one of the device, of its own memory: its owner may change it after the run.

    XLA takes what is aligned as it is, in the call, and copies nothing.
    """
    if type(leaf) is not np.ndarray or leaf.nbytes < _LARGE or used_in_place(leaf):
        return leaf
    return jax.block_until_ready(jax.device_put(leaf))


def _sorts(jaxpr: Any) -> bool:
    return any(e.primitive.name in _SORTS or any(map(_sorts, called(e))) for e in jaxpr.eqns)


def _strip(lowered: jax.stages.Lowered) -> None:
    """Leave out which line of Python each instruction comes from.

    XLA would carry that through all passes and into the file: 1 % of compiling, 4 % of loading.
    """
    module: Any = lowered.compiler_ir()
    with module.context:
        PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)


def _compiled(lowered: jax.stages.Lowered, options: dict[str, Any]) -> jax.stages.Compiled:
    contexts = default_device().platform == "cpu" and options.get("xla_cpu_use_fusion_emitters", True)
    with emitting_last() if contexts else contextlib.nullcontext():
        return compile_with(lowered, options)


def _rename(lowered: jax.stages.Lowered, name: str) -> None:
    module: Any = lowered.compiler_ir()
    with module.context:
        attributes = module.operation.attributes
        attributes["sym_name"] = type(attributes["sym_name"]).get(name)


@cache
def platform_of(device: jax.Device) -> str:
    """The device's platform; asking XLA for it takes a microsecond."""
    return device.platform


def default_device() -> jax.Device:
    """The device that jax computes on unless it is told otherwise."""
    chosen = jax.config.jax_default_device  # type: ignore[attr-defined]
    return chosen if isinstance(chosen, jax.Device) else local_devices(chosen)[0]
