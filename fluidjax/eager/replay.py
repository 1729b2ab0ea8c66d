"""Doing the same ops again: what an optimizer traces in one step, run in the next without its Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluidjax.eager.kernels import Kernel

Call = tuple[Kernel, Sequence[Any], Sequence[Any]]  # a kernel, its input and output variables


class Replay:
    """Ops on persistable variables, whose values they replace, and on given ones, which are others each time.

    Args:
        calls: the ops as they were traced.
        given: the variables that are others each time.
    """

    def __init__(self, calls: Sequence[Call], given: Sequence[Any]) -> None:
        numbers = {id(var): k for k, var in enumerate(given)}
        self._steps: list[tuple[Kernel, list[Any], list[Any]]] = []
        for kernel, ins, outs in calls:
            reads = [numbers.get(id(var), var) for var in ins]
            for var in outs:
                if not var.persistable:
                    numbers.setdefault(id(var), len(numbers))
            self._steps.append((kernel, reads, [numbers.get(id(var), var) for var in outs]))
        self._temporaries = len(numbers) - len(given)

    def run(self, tracer: Any, given: Sequence[Any]) -> None:
        """Run the ops with other given variables."""
        values: list[Any] = [*[var._value for var in given], *[None] * self._temporaries]
        for kernel, reads, writes in self._steps:
            ins = [values[x] if x.__class__ is int else x._value for x in reads]
            for x, result in zip(writes, tracer.run(kernel, ins), strict=False):
                if x.__class__ is int:
                    values[x] = result
                else:
                    x._value, x._place = result, None
