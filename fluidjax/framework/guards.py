"""The programs that layers write to, and the guards that change them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from fluidjax.framework.program import Program

_startup_program_ = Program()
_main_program_ = Program()
_device = ""


def default_startup_program() -> Program:
    """The program that layers write their parameters' initialisation to. Run it once, before training."""
    return _startup_program_


def default_main_program() -> Program:
    """The program that layers write to."""
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
    """Within the guard layers write to these programs.

    Raises TypeError when they are no Programs.
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


class NameScope:
    """A node in the tree of name scopes; a prefix used again gets a number."""

    def __init__(self, name: str = "", parent: NameScope | None = None) -> None:
        self._children: dict[str, list[NameScope]] = {}
        self._name = name
        self._parent = parent

    def child(self, prefix: str) -> NameScope:
        """A new scope inside this one."""
        siblings = self._children.setdefault(prefix, [])
        scope = NameScope(prefix if not siblings else f"{prefix}_{len(siblings)}", self)
        siblings.append(scope)
        return scope

    def parent(self) -> NameScope | None:
        """The scope around this one."""
        return self._parent

    def name(self) -> str:
        """The scope's own part of the path."""
        return self._name


_name_scope = NameScope()


@contextlib.contextmanager
def name_scope(prefix: str | None = None) -> Iterator[None]:
    """Ops made within the guard note `prefix` in their ``op_namescope``; for reading only, names stay as they are."""
    global _name_scope
    if not prefix:
        raise ValueError("name_scope: the prefix is empty. Give it a name, for instance name_scope('encoder').")
    before = _name_scope
    _name_scope = before.child(prefix)
    try:
        yield
    finally:
        _name_scope = before


def _full_name_scope() -> str:
    path, scope = "", _name_scope
    while scope.parent() is not None:
        path = f"{scope.name()}/{path}"
        scope = scope.parent()  # type: ignore[assignment]
    return "/" + path


@contextlib.contextmanager
def device_guard(device: str | None = None) -> Iterator[None]:
    """Ops made within the guard note a device, 'cpu' or 'gpu' (or 'gpu:0' ...), in their ``op_device``.

    XLA places a whole block on one device; the note is kept in files and otherwise has no effect.
    """
    if device not in ("cpu", "gpu", "", None) and not re.fullmatch(r"gpu:\d+", str(device)):
        raise ValueError(
            f"device_guard: the device is {device!r}. Expected 'cpu', 'gpu', 'gpu:<number>', '' or None. Name one."
        )
    before = switch_device(device or "")
    try:
        yield
    finally:
        switch_device(before)


def switch_device(device: str) -> str:
    """Let new ops note `device`; returns the one before."""
    global _device
    before, _device = _device, device
    return before


def _current_device() -> str:
    return _device
