"""How a backward pass runs ops: on values only, or on variables whose own gradients are recorded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from fluidjax.eager.kernels import Kernel, kernel_of
from fluidjax.eager.values import Value


class Engine:
    """Runs the ops of a backward pass on values, without recording."""

    def __init__(self, tracer: Any) -> None:
        self.tracer = tracer

    def run(self, kernel: Kernel, flat: list[Any], node: Any) -> Sequence[Any]:
        """The results of one gradient op, of a node of the tape, for variables and values."""
        return self.tracer.run(kernel, [x if x.__class__ is Value else x._value for x in flat])

    def as_given(self, var: Any) -> Any:
        """The form in which a backward pass stores a variable that is a gradient."""
        return var._value

    def python(self) -> AbstractContextManager[None]:
        """Context manager around a gradient that is a Python function."""
        return self.tracer.no_grad()

    def as_variable(self, given: Any) -> Any:
        """The variable for a stored gradient."""
        return self.tracer.variable_of(given)

    def total(self, parts: list[Any]) -> Any:
        """The sum of gradients."""
        return self.tracer.run(_sum(len(parts)), parts)[0]


class RecordingEngine(Engine):
    """Runs the ops of a backward pass whose own gradients are needed: on variables, with recording."""

    def run(self, kernel: Kernel, flat: list[Any], node: Any) -> Sequence[Any]:
        """See Engine."""
        results = self.tracer.trace_kernel(kernel, list(map(self.as_variable, flat)), forward=node)
        for var in results:  # one whose own gradient is zero takes gradients too
            if var is not None:
                var._stop_gradient = False
        return results

    def as_given(self, var: Any) -> Any:
        """See Engine."""
        return var

    def python(self) -> AbstractContextManager[None]:
        """See Engine."""
        return nullcontext()

    def as_variable(self, given: Any) -> Any:
        """See Engine."""
        return self.tracer.variable_of(given) if given.__class__ is Value else given

    def total(self, parts: list[Any]) -> Any:
        """See Engine."""
        return self.tracer.trace_kernel(_sum(len(parts)), list(map(self.as_variable, parts)))[0]


@cache
def _sum(count: int) -> Kernel:
    return kernel_of("sum", {}, (("X", count),), ("Out",), backward=True)
