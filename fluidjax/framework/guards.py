"""The programs that layers write to, and the guard that changes them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from fluidjax.framework.program import Program

_startup_program_ = Program()
# What layers write to where a script names no program.
FIRST_PROGRAM = _main_program_ = Program()


def default_startup_program() -> Program:
    """The program that initialises the parameters of layers. Run it once, before training.

    Examples:
        >>> y = fluid.layers.fc(fluid.data("x", [None, 3]), 2)
        >>> [op.type for op in fluid.default_startup_program().global_block().ops]
        ['fill_constant', 'uniform_random']
    """
    return _startup_program_


def default_main_program() -> Program:
    """The program to which layers append their ops.

    Examples:
        >>> x = fluid.data("x", [None, 3])
        >>> y = fluid.layers.relu(x)
        >>> [op.type for op in fluid.default_main_program().global_block().ops]
        ['relu']
    """
    return _main_program_


def switch_main_program(program: Program) -> Program:
    """Let layers write to `program`; returns the one before."""
    global _main_program_
    before, _main_program_ = _main_program_, program
    return before


def switch_startup_program(program: Program) -> Program:
    """Let layers write their initialisation to `program`; returns the one before."""
    global _startup_program_
    before, _startup_program_ = _startup_program_, program
    return before


@contextlib.contextmanager
def program_guard(main_program: Program, startup_program: Program | None = None) -> Iterator[None]:
    """Make these the default programs within a ``with`` block.

    Raises TypeError if they are not Programs.

    Examples:
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup):
        ...     y = fluid.layers.fc(fluid.data("x", [None, 3]), 2)
        >>> len(main.global_block().ops), len(startup.global_block().ops)
        (2, 2)
    """
    for name, program in (("main_program", main_program), ("startup_program", startup_program)):
        if not isinstance(program, Program) and not (program is None and name == "startup_program"):
            raise TypeError(
                f"program_guard: {name} is {program!r} of type {type(program).__name__}. Expected a Program. Pass "
                "fluid.Program()."
            )
    main_before = switch_main_program(main_program)
    startup_before = None if startup_program is None else switch_startup_program(startup_program)
    try:
        yield
    finally:
        switch_main_program(main_before)
        if startup_before is not None:
            switch_startup_program(startup_before)
