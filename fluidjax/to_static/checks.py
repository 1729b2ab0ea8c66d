"""Conditions that a run has to meet: it stops with an error where one does not hold.

A branch that is not taken must not stop the run. So a condition within branches or loops is noted in a variable of the
global block, and asked for after the outermost of them.
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
    """A condition did not hold.

    Attributes:
        error: what is to be raised.
    """

    def __init__(self, error: Exception):
        super().__init__(str(error))
        self.error = error


_noted: weakref.WeakKeyDictionary[Program, list[tuple[Variable, Exception]]] = weakref.WeakKeyDictionary()


def require(held: Variable, error: Exception) -> None:
    """Let a run stop with `error` where `held`, which has one element, is false."""
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
    """False; a run that gets here stops with `error`."""
    reached = fill_constant([1], "bool", False)
    require(reached, error)
    return reached


def ask_noted() -> None:
    """After a branch or loop: where it was the outermost, ask for the conditions noted in it."""
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
    """Within, ops are written to the global block: before the outermost branch or loop, which is written last."""
    current, program.current_block_idx = program.current_block_idx, 0
    try:
        yield
    finally:
        program.current_block_idx = current
