"""Generates names unique within a program: ``fc_0``, ``fc_1`` ..., numbered per key."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator

from fluidjax.base.mode import in_dygraph_mode

__all__ = ["generate", "switch", "guard"]


class UniqueNameGenerator:
    """Numbers names per key; `prefix` is prepended to each, and names that are `taken` are passed over."""

    def __init__(self, prefix: str | None = None) -> None:
        self.ids: defaultdict[str, int] = defaultdict(int)
        self.prefix = prefix or ""
        self.taken: Callable[[str], bool] | None = None

    def __call__(self, key: str) -> str:
        """``key_N`` with the next N for that key."""
        while True:
            number = self.ids[key]
            self.ids[key] += 1
            name = f"{self.prefix}{key}_{number}"
            if self.taken is None or not self.taken(name):
                return name


class DygraphParameterNameChecker:
    """Records the parameter names of eager layers, to detect duplicates."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def __call__(self, name: str) -> bool:
        """Whether `name` was seen before; records it."""
        seen = name in self._names
        self._names.add(name)
        return seen


generator = UniqueNameGenerator()
dygraph_parameter_name_checker = DygraphParameterNameChecker()


def generate(key: str) -> str:
    """A name derived from `key` that the current generator has not returned yet."""
    return generator(key)


def generate_with_ignorable_key(key: str) -> str:
    """Like ``generate``; in eager mode the key is ignored, and names are ``tmp_N``."""
    return generator("tmp" if in_dygraph_mode() else key)


@contextlib.contextmanager
def passing_over(taken: Callable[[str], bool]) -> Iterator[None]:
    """Context manager: no name is generated of which ``taken(name)`` holds."""
    changed, before = generator, generator.taken
    changed.taken = taken
    try:
        yield
    finally:
        changed.taken = before


def switch(
    new_generator: UniqueNameGenerator | None = None,
    new_para_name_checker: DygraphParameterNameChecker | None = None,
) -> tuple[UniqueNameGenerator, DygraphParameterNameChecker]:
    """Replace the generator (by default with a new one); returns the previous ones."""
    global generator, dygraph_parameter_name_checker
    before = generator, dygraph_parameter_name_checker
    generator = UniqueNameGenerator() if new_generator is None else new_generator
    dygraph_parameter_name_checker = new_para_name_checker or DygraphParameterNameChecker()
    return before


@contextlib.contextmanager
def guard(new_generator: UniqueNameGenerator | str | bytes | None = None) -> Iterator[None]:
    """Number generated names from 0, or continue `new_generator`, within a ``with`` block; a string is used as prefix.

    Examples:
        >>> for _ in range(2):
        ...     with fluid.unique_name.guard(), fluid.program_guard(fluid.Program()):
        ...         fluid.layers.fc(fluid.data("x", [None, 4]), 2).name
        'fc_0.tmp_1'
        'fc_0.tmp_1'
    """
    if isinstance(new_generator, bytes):
        new_generator = new_generator.decode()
    if isinstance(new_generator, str):
        new_generator = UniqueNameGenerator(new_generator)
    before = switch(new_generator)
    try:
        yield
    finally:
        switch(*before)
