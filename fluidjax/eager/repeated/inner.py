"""What is within a call whose ops are known (see ``bodies``): its ops, as the tape holds them, and its results."""

from __future__ import annotations

from typing import Any, NamedTuple

from fluidjax.eager.kernels import Kernel
from fluidjax.eager.values import Spec

OUTSIDE: Any = object()  # in place of a parent: the place of the variable that the call was given
Ref = int  # a variable: the number of a result of the call, or ~k for variable k that it reads


class Inner(NamedTuple):
    """What the tape holds of one op of a body.

    Attributes:
        inputs: its input variables.
        parents: for each (number of an op with a gradient, its output), OUTSIDE, None or UNWANTED.
        saved: outputs that the gradient reads, and which result each is.
    """

    kernel: Kernel
    inputs: tuple[Ref, ...]
    parents: tuple[Any, ...]
    specs: Any
    plan: Any
    saved: tuple[tuple[int, int], ...]


class Result(NamedTuple):
    """A variable computed by a body, which its tape or its caller holds.

    Attributes:
        code: the number of the output.
        number: of its name, counted from where the call began.
        generated: whether it is called ``generated_var_N``.
        direct: whether the tracer numbers it.
        stop_gradient: of the variable.
    """

    code: int
    spec: Spec
    number: int
    direct: bool
    stop_gradient: bool | None
    generated: bool = False

    @property
    def naming(self) -> tuple[int, int, int]:
        """(base, sign, offset): where ``bases`` are the next numbers, it is called ``sign * bases[base] + offset``."""
        base = 0 if self.direct else 1
        return (base, -1, ~self.number) if self.generated else (base, 1, self.number)

    def name(self, bases: tuple[int, int]) -> int:
        """Of the variable, where ``bases`` are the next numbers (see ``VarBase.name``)."""
        base, sign, offset = self.naming
        return sign * bases[base] + offset
