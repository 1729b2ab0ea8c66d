"""Eager variables read by a static program, each represented by a variable of the program.

While an eager function is converted to a program, values from elsewhere, such as a layer's parameters or a mask stored
in an attribute, already exist. The program declares a variable for each; running the program feeds it the eager
variable's current value, and copies back the value that the program leaves in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fluidjax.base.errors import explain
from fluidjax.framework.parameter import EagerParameter, Parameter
from fluidjax.framework.variable import Variable

if TYPE_CHECKING:
    from fluidjax.framework.program import Program


class Captures:
    """The eager variables read by a program.

    Attributes:
        values: maps names in the program to eager variables.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self.values: dict[str, Any] = {}

    def variable(self, eager: Any) -> Variable:
        """The program variable that represents an eager one."""
        block = self._program.global_block()
        name = eager.name
        while self._names_another(name, eager):
            name += "@CAPTURED"
        if name not in block.vars:
            self.values[name] = eager
            self._declare(name, eager)
        return block.vars[name]

    def _names_another(self, name: str, eager: Any) -> bool:
        """Whether some block has a variable of that name that stands for something else."""
        return self.values.get(name) is not eager and any(name in block.vars for block in self._program.blocks)

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
    """The variable of `program` that represents an eager one. Raises TypeError if the program captures none."""
    if program._captures is None:
        raise TypeError(
            explain(
                f"an op of a static program was given {eager.name}, a variable of eager mode",
                "Variables of the program",
                "a variable that has a value already",
                "call a layer of eager mode inside fluid.dygraph.guard(), or feed the program its value,"
                " eager_variable.numpy()",
            )
        )
    return program._captures.variable(eager)
