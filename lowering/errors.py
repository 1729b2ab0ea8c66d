"""Errors of the lowering. Each says what is wrong, what was expected and received, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from lowering.program import OpView


class EnforceNotMet(Exception):
    """A condition that the runtime insists on does not hold; scripts know it as ``fluid.core.EnforceNotMet``."""


class LoweringError(EnforceNotMet):
    """Base of every error that the lowering raises about a program."""


class UnknownOpError(LoweringError, KeyError):
    """A program holds an op type that is not registered."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class AttrError(LoweringError, TypeError, ValueError):
    """An op's attribute is unknown, missing or of the wrong type."""


class SlotError(LoweringError, ValueError, AssertionError):
    """An op's input or output slot is unknown, or required and not given."""


class UninitializedError(LoweringError, RuntimeError):
    """An op reads a variable that holds no value.

    Attributes:
        variable: its name.
        reader: the op, in words.
        line: the user's line that made the op; "" where it is unknown.
    """

    def __init__(self, message: str, variable: str = "", reader: str = "", line: str = ""):
        super().__init__(message)
        self.variable = variable
        self.reader = reader
        self.line = line


class OpError(LoweringError, RuntimeError):
    """An op's rule failed on its values; the cause is chained."""


class Misfit(ValueError):
    """What is declared of an op's inputs, or one of its attributes, is not what the op takes."""


class SizeError(ValueError):
    """An input is too small for what an op does; ``size`` is the size that does not suffice."""

    def __init__(self, message: str, size: int):
        super().__init__(message)
        self.size = size


class InvalidArgumentError(LoweringError, ValueError):
    """An op was given numbers that it cannot take: an id outside of its table, an integer divisor of 0."""


class Need(Exception):
    """Not an error: an op cannot be lowered with what this trace knows, and the executor has to lower it otherwise.

    Attributes:
        op_index: the op of the outermost block that asked, or that runs the block of the op that asked; -1 if unknown.
        asker: the op that asked.
    """

    op_index: int = -1
    asker: OpView | None = None

    @property
    def where(self) -> str:
        """The op that asked, with the user's line, for messages; '' if unknown."""
        return "" if self.asker is None else self.asker.place()

    def asked_by(self, op: OpView) -> Self:
        """Note that ``op`` asked, or that the op that did is in a block that ``op`` runs."""
        if self.asker is None:
            self.asker = op
        if op.block_idx == 0:
            self.op_index = op.index
        return self

    def refusal(self) -> LoweringError:
        """What to tell the user where the need cannot be met."""
        expected, received, remedy = self._missing()
        return LoweringError(
            f"{self.where or 'an op'} cannot be run: {self}.\n  expected: {expected}\n  received: {received}\n  to do:"
            f" {remedy}"
        )

    def _missing(self) -> tuple[str, str, str]:
        return (
            "a value on the host",
            "one that only the running program knows",
            "make it an attribute or a feed, or take the op out of the loop or branch that it is in",
        )


class NeedsExact(Need):
    """Not an error: this op cannot run on padded rows, so the block must be traced again with exact rows.

    The executor catches it and recompiles with capacity == rows; where rows are padded all the same, since their number
    depends on data, it runs the op outside jit (DESIGN: fail closed, never wrong).
    """

    def _missing(self) -> tuple[str, str, str]:
        return (
            "rows whose number is known when the op runs",
            "rows whose number depends on data inside a loop or branch",
            "take the op out of it, or feed what decides the number of rows",
        )


class NeedsSizes(Need):
    """Not an error: this op cannot run with more room along some axes than there are places taken.

    The executor then compiles for the sizes that ``labels`` stand for as they are (see ``lowering.engine.wide``).
    """

    labels: frozenset[Any] = frozenset()


class RegistryError(LoweringError, TypeError):
    """A rule is declared in a way that cannot work; raised when the op is registered."""


class NeedsConcrete(Need):
    """Not an error: a rule needs host values of ``what`` (a shape, say) that this trace does not know.

    The executor then runs the op outside jit, where every value is known. ``longest``: knowing how long the longest
    sequence of each feed is may be enough.
    """

    longest: bool = False
