"""Errors of the lowering. Each says what is wrong, what was expected and received, and what to do."""

from __future__ import annotations


class EnforceNotMet(Exception):
    """A condition that the runtime insists on does not hold; scripts know it as ``fluid.core.EnforceNotMet``."""


class LoweringError(EnforceNotMet):
    """Base of every error that the lowering raises about a program."""


class UnknownOpError(LoweringError, KeyError):
    """A program holds an op type that is not registered."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class AttrError(LoweringError, ValueError):
    """An op's attribute is unknown, missing or of the wrong type."""


class SlotError(LoweringError, ValueError):
    """An op's input or output slot is unknown, or required and not given."""


class UninitializedError(LoweringError, RuntimeError):
    """An op reads a variable that holds no value."""


class OpError(LoweringError, RuntimeError):
    """An op's rule failed on its values; the cause is chained."""


class SizeError(ValueError):
    """An input is too small for what an op does; ``size`` is the size that does not suffice."""

    def __init__(self, message: str, size: int):
        super().__init__(message)
        self.size = size


class InvalidArgumentError(LoweringError, ValueError):
    """An op was given numbers that it cannot take: an id outside of its table, an integer divisor of 0."""


class NeedsExact(Exception):
    """Not an error: this op cannot run on padded rows, so the block must be traced again with exact rows.

    The executor catches it and recompiles with capacity == rows (DESIGN: fail closed, never wrong).
    """


class RegistryError(LoweringError, TypeError):
    """A rule is declared in a way that cannot work; raised when the op is registered."""


class NeedsConcrete(Exception):
    """Not an error: a rule needs host values of ``what`` (a shape, say) that this trace does not know.

    The executor then runs the op outside jit, where every value is known; ``op_index`` is the op of the outermost
    block that asked, or that runs the block of the op that asked. ``longest``: knowing how long the longest sequence of
    each feed is may be enough.
    """

    op_index: int = -1
    longest: bool = False
