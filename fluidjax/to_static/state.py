"""The names that a branch or loop assigns, read and set together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class State(NamedTuple):
    """The symbols that a statement assigns.

    Attributes:
        read: returns the values.
        write: sets the values.
        names: the symbols' names.
        live: the symbols that may be read afterwards; attributes are always included.
    """

    read: Callable[[], tuple[Any, ...]]
    write: Callable[[Sequence[Any]], None]
    names: tuple[str, ...]
    live: tuple[str, ...]

    def needed(self, name: str) -> bool:
        """Whether a symbol may be read after the statement."""
        return "." in name or name in self.live
