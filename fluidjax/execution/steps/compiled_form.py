"""Ops compiled for values of one form: what a run calls, with which arguments, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax

from fluidjax.execution.executables.executable import Executable
from fluidjax.execution.steps.form import given
from fluidjax.execution.steps.guard import Checks
from fluidjax.execution.steps.kept_parts import Part, taken
from fluidjax.execution.steps.traceable import Traced
from lowering.engine.expected import check_expected
from lowering.errors import InvalidArgumentError


class Returned(NamedTuple):
    """What a step returns: ``results``, which buffers overflowed, and the error of a fault it found."""

    results: tuple[Any, ...]
    overflows: Mapping[str, Any]
    failure: InvalidArgumentError | None


class Compiled(NamedTuple):
    """Ops compiled for values of one form; the values are checked on the host or by the step.

    ``executable.call(replaced, self.given(values), seed)`` returns (the arrays of the results, overflow flags, what the
    checks found). By ``deque.extend(map(executable.call, ...))`` it overwrites ``replaced`` and appends what it leaves,
    with nothing between: signal handlers run between two of the interpreter's own instructions only, and ``extend`` is
    one. ``numbers`` are those of the names that the ops draw into (see ``drawn``), ``parts`` those that the step takes
    beside the state (see ``kept_parts``).
    """

    executable: Executable
    traced: Traced
    checks: Checks | None = None
    numbers: tuple[Any, ...] = ()
    parts: tuple[Part, ...] = ()

    def results(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """The results: arrays, LoDArrays ..."""
        structure = self.traced.structure
        return tuple(arrays) if structure is None else jax.tree_util.tree_unflatten(structure, arrays)

    def given(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """What ``executable.call`` is given for the values."""
        return (*self.executable.arrived(given(values)), *self.numbers, *taken(self.parts, values))

    def before(self, values: Sequence[Any]) -> None:
        """Raise what can be known before the step: InvalidArgumentError for faults; NeedsExact or NeedsSizes where rows
        to be paired differ in number, or a dim is too short.
        """
        if self.traced.expected:
            check_expected(self.traced.expected, values)
        if self.checks is not None:
            self.checks.before(values)

    def after(self, left: Any) -> InvalidArgumentError | None:
        """The error that the step itself found, in which case it left what it replaces unchanged."""
        return None if self.checks is None else self.checks.after(left)
