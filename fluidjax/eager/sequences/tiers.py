"""A block is compiled twice: quickly at first, and well once its runs have taken as long as that takes.

Most scripts end before XLA's and LLVM's optimisations pay: these are four fifths of compiling, and a block is several
times as fast as its ops one by one without them. What they are for is loops over many numbers, and convolutions;
blocks of these are compiled well at once. So are blocks that an earlier process compiled well, where there is a folder
for what is compiled: XLA's cache holds them, and a note beside the records of programs says so.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from math import prod
from typing import Any

import jax

from fluidjax.eager.values import Spec
from fluidjax.execution.executables.executable import Executable, default_device
from fluidjax.execution.executables.kept import machine, store
from lowering.engine.interrupts import uninterrupted
from lowering.engine.x64 import in_x64

# Fusions become LLVM's instructions without MLIR, and these machine code as they are.
_QUICK = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 0}
_WELL = 0.015  # seconds per op that compiling well takes: 7 to 30 ms were seen
_MANY = 50_000  # numbers that an op computes on the average: without LLVM's vectors they take as long as calling it
_TIMED = 3  # runs whose seconds are taken


def light(types: Iterable[str], specs: Iterable[Spec | None], ops: int) -> bool:
    """Whether ops, with outputs of these specs, are first compiled quickly."""
    if default_device().platform != "cpu" or any("conv" in type for type in types):
        return False
    return sum([_numbers(spec) for spec in specs if spec is not None]) <= _MANY * ops


def _numbers(spec: Spec) -> int:
    return prod(spec.shape) if spec.rows is None else spec.rows * prod(spec.shape[1:])


class Tiered:
    """A function of ``jax.jit`` as its best executable so far.

    Attributes:
        better: asks for a better one, when it is due; None if there is to be none.
        last: its place among what waits to be compiled well.
    """

    better: Callable[[], object] | None = None
    last = 0

    def __init__(self) -> None:
        self._traced: Any = None
        self._note = ""  # what an earlier process may have left
        self._executable: Any = None
        self._settled: Any = None  # of the executables, the last one that has run
        self._direct: Any = None
        self._seconds, self._runs, self._left = float("inf"), 0, 0.0

    def _compile_first(self, traced: Any, ops: int, *, quick: bool, content: Hashable = ()) -> None:
        """Compile a trace (``jax.stages.Traced``) of so many ops.

        Args:
            content: tells it from others, for other processes.
        """
        if quick and (notes := store()) is not None:
            self._note = hashlib.sha256(repr(("compiled well", machine(), content)).encode()).hexdigest()
            quick = notes.get(self._note) is None
        self._traced, self._left = (traced, ops * _WELL) if quick else (None, 0.0)
        self._executable = Executable.of(traced, options=_QUICK if quick else None)

    @in_x64
    def improve(self) -> int:
        """Compile it well; returns the number of compilations."""
        traced, self._traced = self._traced, None
        if traced is None:
            return 0
        self._executable = uninterrupted(lambda: Executable.of(traced))
        if self._note and (notes := store()) is not None:
            notes.put(self._note, b"")
        return 1

    @property
    def seconds(self) -> float:
        """What a run takes, as far as that is known."""
        return 0.0 if self._seconds == float("inf") else self._seconds

    @property
    def ready(self) -> bool:
        """Whether it can be run by ``direct``: there is no better executable that has to run once first."""
        return self._settled is self._executable and (self._traced is None or self._runs >= _TIMED)

    @property
    def direct(self) -> Any:
        """For one more run, whatever jax's settings are: the executable, which takes arrays of the device.

        None unless it is ``ready``.
        """
        if self._settled is not self._executable:
            return None
        if self._traced is None:  # nothing better will come
            self._runs += 1
            return self._direct
        if self._runs < _TIMED:
            return None
        self._count()
        return self._direct

    def call(self, arguments: Sequence[Any]) -> Any:
        """The results of the executable, as XLA gives them, with 64-bit types enabled."""
        executable = self._executable
        if self._traced is not None and self._runs < _TIMED:
            begin = time.process_time()  # XLA's threads are of it, and what other processes take decides nothing
            found = jax.block_until_ready(executable.call(*arguments))
            self._seconds = min(self._seconds, time.process_time() - begin)
        else:
            found = executable.call(*arguments)
        if self._settled is not executable:
            executable.settle()
            self._settled, self._direct = executable, executable.call
        self._count()
        return found

    def _count(self) -> None:
        """One more run: when all of them have taken what compiling well takes, that is asked for."""
        self._runs += 1
        self._left -= self._seconds
        if self._left <= 0 and self._traced is not None and self.better is not None:
            better, self.better = self.better, None
            uninterrupted(better)
