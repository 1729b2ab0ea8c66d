"""Errors of the lowering. Each says what is wrong, what was expected and received, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from lowering.program import OpView


def near(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """The ``known`` names that are most like ``name``, the nearest first; capitals make no difference."""
    spelled: dict[str, list[str]] = {}
    for other in known:
        spelled.setdefault(other.lower(), []).append(other)
    return [other for small in get_close_matches(name.lower(), spelled, most) for other in spelled[small]][:most]


# What JAX says of the commonest mistake, a layer of another width than its input's.
_CONTRACTED = re.compile(r"dot_general requires contracting dimensions to have the same shape, got (.+) and (.+)\.")
_WIDTHS = r"the dims that a product sums over differ, \1 and \2; it takes as many columns of X as Y has rows"


def plain(error: BaseException) -> str:
    """What an error of JAX says, without JAX's words; the name of its type if it says nothing."""
    return _CONTRACTED.sub(_WIDTHS, str(error).strip()) or type(error).__name__


class EnforceNotMet(Exception):
    """A condition required by the runtime does not hold; scripts know it as ``fluid.core.EnforceNotMet``."""


class LoweringError(EnforceNotMet):
    """Base of every error that the lowering raises about a program."""


class UnknownOpError(LoweringError, KeyError):
    """A program contains an op type that is not registered."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class AttrError(LoweringError, TypeError, ValueError):
    """An op's attribute is unknown, missing or of the wrong type."""


class SlotError(LoweringError, ValueError, AssertionError):
    """An op's input or output slot is unknown, or required and missing."""


class UninitializedError(LoweringError, RuntimeError):
    """An op reads a variable without a value.

    Attributes:
        variable: its name.
        reader: the op, in words.
        line: the user's line that created the op; "" if unknown.
    """

    def __init__(self, message: str, variable: str = "", reader: str = "", line: str = ""):
        super().__init__(message)
        self.variable = variable
        self.reader = reader
        self.line = line

    @classmethod
    def shape_alone(cls, reader: str, variable: str, shape: tuple[int, ...]) -> UninitializedError:
        """The error of reading the elements of a variable of which only the shape is here."""
        return cls(
            f"{reader} reads {variable!r}, of which this process has the shape alone"
            "\n  expected: a value"
            f"\n  received: a shape, {list(shape)}, as a trainer has of a table that parameter servers hold"
            "\n  what to do: run a program that asks the servers, such as the trainer's, or a clone of it"
        )


class OpError(LoweringError, RuntimeError):
    """An op's rule failed on its values; the cause is chained."""


class Misfit(ValueError):
    """The declaration of an op's inputs, or one of its attributes, is not what the op takes."""


class SizeError(ValueError):
    """An input is too small for an op; ``size`` is the size that is too small."""

    def __init__(self, message: str, size: int):
        super().__init__(message)
        self.size = size


class InvalidArgumentError(LoweringError, ValueError):
    """An op was given numbers that it cannot take: an id outside its table, an integer divisor of 0."""


class Need(Exception):
    """Not an error: an op cannot be lowered with what this trace knows, and the executor must lower it differently.

    Attributes:
        op_index: the op of the outermost block that has the need, or runs the block of the one with it; -1 if unknown.
        asker: the op that has the need.
    """

    op_index: int = -1
    asker: OpView | None = None

    @property
    def where(self) -> str:
        """The op that has the need, with the user's line, for messages; '' if unknown."""
        return "" if self.asker is None else self.asker.place()

    def asked_by(self, op: OpView) -> Self:
        """Record that ``op`` has the need, or runs the block of the op that has it."""
        if self.asker is None:
            self.asker = op
        if op.block_idx == 0:
            self.op_index = op.index
        return self

    def refusal(self) -> LoweringError:
        """What to tell the user if the need cannot be met."""
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

    The executor catches it and recompiles with capacity == rows; if rows are padded regardless, because their number
    depends on data, it runs the op outside jit (DESIGN: fail closed, never wrong).
    """

    def _missing(self) -> tuple[str, str, str]:
        return (
            "rows whose number is known when the op runs",
            "rows whose number depends on data inside a loop or branch",
            "take the op out of it, or feed what decides the number of rows",
        )


class CarryChanges(NeedsExact):
    """Not an error: what a loop carries differs from step to step in more than the number of its rows."""

    def _missing(self) -> tuple[str, str, str]:
        return (
            "a value that has the same dtype, rank and LoD levels after each step as before the first",
            "one that changes, in a loop or branch whose steps cannot be run one by one",
            "cast or reshape it to its final form before the loop, and write values of one kind to a list",
        )


class NeedsSizes(Need):
    """Not an error: this op cannot run with spare room along some axes.

    The executor then compiles for the exact sizes that ``labels`` denote (see ``lowering.wide``).
    """

    labels: frozenset[Any] = frozenset()


class RegistryError(LoweringError, TypeError):
    """A rule is declared in a way that cannot work; raised during registration."""


class NeedsConcrete(Need):
    """Not an error: a rule needs host values of ``what`` (such as a shape) that this trace does not know.

    The executor then runs the op outside jit, where every value is known. ``longest``: knowing the length of the
    longest sequence of each feed may be enough.
    """

    longest: bool = False
