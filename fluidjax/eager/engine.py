"""What runs the ops of a pass: on values alone, or on variables whose own gradients are recorded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

from fluidjax.eager.kernels import Kernel, kernel_of
from fluidjax.eager.values import Value

if TYPE_CHECKING:
    from fluidjax.eager.tape import OpNode


class Engine:
    """How a backward pass runs ops: on values, leaving no trace."""

    def __init__(self, tracer: Any) -> None:
        self.tracer = tracer

    def run(self, kernel: Kernel, flat: list[Any], node: OpNode) -> Sequence[Any]:
        """The results of one gradient op for variables and values."""
        return self.tracer.run(kernel, [x if x.__class__ is Value else x._value for x in flat])

    def as_given(self, var: Any) -> Any:
        """What a backward pass holds of a variable that is a gradient."""
        return var._value

    def python(self) -> AbstractContextManager[None]:
        """Within, a gradient that is a Python function runs."""
        return self.tracer.no_grad()

    def as_variable(self, given: Any) -> Any:
        """The variable for what a backward pass holds."""
        return self.tracer.variable_of(given)

    def total(self, parts: list[Any]) -> Any:
        """The sum of gradients."""
        return self.tracer.run(_sum(len(parts)), parts)[0]


class RecordingEngine(Engine):
    """How a backward pass runs ops whose own gradients are wanted: on variables, onto the tape."""

    def run(self, kernel: Kernel, flat: list[Any], node: OpNode) -> Sequence[Any]:
        """See Engine."""
        return self.tracer.trace_kernel(kernel, list(map(self.as_variable, flat)), forward=node)

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
