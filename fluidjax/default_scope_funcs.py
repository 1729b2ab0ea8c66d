"""A stack of scopes, for code that refers to "the current scope"."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from fluidjax.base.scope import Scope, ScopeVariable

__all__ = ["get_cur_scope", "enter_local_scope", "leave_local_scope", "var", "find_var", "scoped_function"]

T = TypeVar("T")
_local = threading.local()


def _stack() -> list[Scope]:
    if not hasattr(_local, "scopes"):
        _local.scopes = [Scope()]
    return _local.scopes


def get_cur_scope() -> Scope:
    """This thread's current scope."""
    return _stack()[-1]


def enter_local_scope() -> None:
    """Create a scope inside the current one and make it current."""
    _stack().append(get_cur_scope().new_scope())


def leave_local_scope() -> None:
    """Return to the enclosing scope, discarding the current one. Raises RuntimeError at the outermost scope."""
    if len(_stack()) == 1:
        raise RuntimeError("leave_local_scope: no local scope was entered. Call enter_local_scope first.")
    _stack().pop()
    get_cur_scope().drop_kids()


def var(name: str) -> ScopeVariable:
    """The current scope's variable of that name, created if missing."""
    return get_cur_scope().var(name)


def find_var(name: str) -> ScopeVariable | None:
    """The variable of that name in the current scope or an enclosing one."""
    return get_cur_scope().find_var(name)


def scoped_function(func: Callable[[], T]) -> T:
    """Call `func` in a local scope."""
    enter_local_scope()
    try:
        return func()
    finally:
        leave_local_scope()
