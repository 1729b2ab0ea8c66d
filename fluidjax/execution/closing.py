"""What is to be done when an executor is closed."""

from __future__ import annotations

from collections.abc import Callable

_actions: list[Callable[[], None]] = []


def when_closed(action: Callable[[], None]) -> None:
    """Let ``action`` be done at each ``Executor.close``."""
    _actions.append(action)


def close() -> None:
    """Do all of it."""
    for action in _actions:
        action()
