"""Actions to take when an executor is closed."""

from __future__ import annotations

from collections.abc import Callable

_actions: list[Callable[[], None]] = []


def when_closed(action: Callable[[], None]) -> None:
    """Run ``action`` at each ``Executor.close``."""
    _actions.append(action)


def close() -> None:
    """Run all actions."""
    for action in _actions:
        action()
