"""Conditions that a run must meet: if one does not hold, the run stops with an error.

A branch that is not taken must not stop the run. Conditions inside branches or loops are therefore recorded in a
variable of the global block and checked after the outermost branch or loop.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from fluidjax.framework import Program, Variable, default_main_program
from fluidjax.layers.nn import logical_and, py_func
from fluidjax.layers.tensor import assign, fill_constant
from fluidjax.to_static.trial import on_trial


class Broken(Exception):
    """A condition that did not hold.

    Attributes:
        error: the exception to raise.
    """

    def __init__(self, error: Exception):
        super().__init__(str(error))
        self.error = error


_noted: weakref.WeakKeyDictionary[Program, list[tuple[Variable, Exception]]] = weakref.WeakKeyDictionary()


def require(held: Variable, error: Exception) -> None:
    """Make a run stop with `error` if `held`, which has one element, is false."""
    program = default_main_program()
    if program.current_block_idx == 0:
        _ask(held, error)
        return
    with _global_block(program):
        so_far = fill_constant([1], "bool", True)
    assign(logical_and(so_far, held), so_far)
    if not on_trial():
        _noted.setdefault(program, []).append((so_far, error))


def never(error: Exception) -> Variable:
    """False; a run that reaches this point stops with `error`."""
    reached = fill_constant([1], "bool", False)
    require(reached, error)
    return reached


def ask_noted() -> None:
    """After an outermost branch or loop, check the conditions recorded in it."""
    program = default_main_program()
    if program.current_block_idx == 0 and not on_trial():
        for held, error in _noted.pop(program, ()):
            _ask(held, error)


def _ask(held: Variable, error: Exception) -> None:
    def check(value: Any) -> None:
        if not np.asarray(value).all():
            raise Broken(error) from error

    py_func(check, held, None)


@contextlib.contextmanager
def _global_block(program: Program) -> Iterator[None]:
    """Inside, ops go to the global block, before the outermost branch or loop, which is written last."""
    current, program.current_block_idx = program.current_block_idx, 0
    try:
        yield
    finally:
        program.current_block_idx = current
