"""Variables of eager mode that a static program reads: each is stood for by one of the program's own.

While a function of eager mode is written as a program, what it takes from elsewhere - a layer's parameters, a mask kept
in an attribute - is there with its value. The program declares a variable of that name; whoever runs it gives it the
value that the eager variable has then, and takes over what the program leaves in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fluidjax.base.errors import explain
from fluidjax.framework.variable import EagerParameter, Parameter, Variable

if TYPE_CHECKING:
    from fluidjax.framework.program import Program


class Captures:
    """The eager variables that a program reads.

    Attributes:
        values: name in the program -> eager variable.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self.values: dict[str, Any] = {}

    def variable(self, eager: Any) -> Variable:
        """The program's variable that stands for an eager one."""
        block = self._program.global_block()
        name = eager.name
        while name in block.vars and self.values.get(name) is not eager:
            name += "@CAPTURED"
        if name not in block.vars:
            self.values[name] = eager
            self._declare(name, eager)
        return block.vars[name]

    def _declare(self, name: str, eager: Any) -> None:
        block = self._program.global_block()
        if issubclass(type(eager), EagerParameter) and eager.shape:
            var: Variable = Parameter(
                block, shape=eager.shape, dtype=eager.dtype, name=name, trainable=getattr(eager, "trainable", True)
            )
        else:
            var = Variable(block, name=name, shape=eager.shape, dtype=eager.dtype, persistable=True)
        var.stop_gradient = eager.stop_gradient


def captured(program: Program, eager: Any) -> Variable:
    """The variable of `program` that stands for an eager one. Raises TypeError where the program captures none."""
    if program._captures is None:
        raise TypeError(
            explain(
                f"an op of a static program was given {eager.name}, a variable of eager mode",
                "Variables of the program",
                "a variable that has a value already",
                "feed its value, eager_variable.numpy(), or write the net inside fluid.dygraph.guard()",
            )
        )
    return program._captures.variable(eager)
