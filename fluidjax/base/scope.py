"""Scopes: values by name. A scope sees its own variables and those of its ancestors."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

from fluidjax.base.containers import FetchList, LodRankTable, LoDTensorArray, SelectedRows
from fluidjax.base.errors import EnforceNotMet
from fluidjax.base.values import LoDTensor, keep_own

T = TypeVar("T")


class ScopeVariable:
    """A variable of a Scope: empty, or holding a value of a fixed type.

    ``_holder`` is the value itself; programs read and replace it directly.
    """

    __slots__ = ("_held", "_name", "__weakref__")

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._held: Any = None

    @property
    def _holder(self) -> Any:
        return self._held

    @_holder.setter
    def _holder(self, holder: Any) -> None:
        keep_own(self._held)
        self._held = holder

    def get_tensor(self) -> LoDTensor:
        """The LoDTensor; created empty if the variable is empty."""
        return self._get(LoDTensor)

    def get_selected_rows(self) -> SelectedRows:
        """The SelectedRows; created empty if the variable is empty."""
        return self._get(SelectedRows)

    def get_lod_tensor_array(self) -> LoDTensorArray:
        """The LoDTensorArray; created empty if the variable is empty."""
        return self._get(LoDTensorArray)

    def is_int(self) -> bool:
        """Whether the variable holds a plain int."""
        return type(self._holder) is int

    def get_int(self) -> int:
        """The plain int. Raises EnforceNotMet if the variable does not hold one."""
        return self._held_of(int)

    def set_int(self, value: int) -> None:
        """Store a plain int."""
        self._get(int)
        self._holder = _number(int, value)

    def is_float(self) -> bool:
        """Whether the variable holds a plain float."""
        return type(self._holder) is float

    def get_float(self) -> float:
        """The plain float. Raises EnforceNotMet if the variable does not hold one."""
        return self._held_of(float)

    def set_float(self, value: float) -> None:
        """Store a plain float."""
        self._get(float)
        self._holder = _number(float, value)

    def get_bytes(self) -> bytes:
        """The plain bytes."""
        return self._get(bytes)

    def set_scope(self, scope: Scope) -> None:
        """Store a scope."""
        self._holder = scope

    def get_fetch_list(self) -> FetchList:
        """The list filled by fetch ops."""
        return self._get(FetchList)

    def get_reader(self) -> Any:
        """The reader held by the variable."""
        return self._holder

    def get_lod_rank_table(self) -> LodRankTable:
        """The rank table held by the variable; empty if it holds nothing yet."""
        return LodRankTable(self._holder)

    def _get(self, kind: type[T]) -> T:
        if self._holder is None:
            self._holder = kind()
        elif not isinstance(self._holder, kind):
            raise EnforceNotMet(
                f"Scope variable {self._name!r}: the Variable type must be {kind.__name__}, but the type it holds "
                f"is {type(self._holder).__name__}. Ask for what it holds."
            )
        return self._holder

    def _held_of(self, kind: type[T]) -> T:
        if self._holder is None:
            raise EnforceNotMet(
                f"Scope variable {self._name!r}: Variable is not initialized, it holds no {kind.__name__} yet. "
                f"Call set_{kind.__name__} first."
            )
        return self._get(kind)

    def __repr__(self) -> str:
        held = "nothing" if self._holder is None else type(self._holder).__name__
        return f"<scope variable {self._name!r} holding {held}>"


def _number(kind: type[T], value: Any) -> T:
    if isinstance(value, (str, bytes)) or value is None or (kind is int and type(value) is float):
        raise TypeError(
            f"a scope variable of {kind.__name__}: received {value!r}. Expected a number. Convert it first."
        )
    return kind(value)  # type: ignore[call-arg]  # int and float alone


class Scope:
    """Variables by name, in an optional parent scope.

    ``_edition`` counts changes of which variable a name refers to, here or in ancestors. ``_lock``, shared by a tree of
    scopes, is held while changing values or reading several that belong together.

    Examples:
        >>> scope = fluid.Scope()
        >>> scope.var("x").get_tensor().set(np.float32([1, 2]), fluid.CPUPlace())
        >>> np.array(scope.find_var("x").get_tensor())
        array([1., 2.], dtype=float32)
    """

    def __init__(self, _parent: Scope | None = None) -> None:
        self._vars: dict[str, ScopeVariable] = {}
        self._parent = _parent
        self._children: list[Scope] = []
        self._anonymous = 0
        self._pooled = _parent is None
        self._changes = 0
        self._lock: Any = threading.RLock() if _parent is None else _parent._lock

    @property
    def _edition(self) -> int:
        return self._changes if self._parent is None else self._changes + self._parent._edition

    def var(self, name: str = "") -> ScopeVariable:
        """This scope's own variable of that name, created if missing; an empty name creates an anonymous one."""
        if not isinstance(name, str):
            raise TypeError(f"var takes a name: expected a str, received {name!r}. Pass variable.name.")
        if not name:
            name = f"@anonymous@{self._anonymous}"
            self._anonymous += 1
        found = self._vars.get(name)
        if found is None:
            found = self._vars[name] = ScopeVariable(name)
            self._changes += 1
        return found

    def find_var(self, name: str) -> ScopeVariable | None:
        """The variable of that name here or in the nearest ancestor, or None. Raises TypeError for an invalid name."""
        if not isinstance(name, str):
            raise TypeError(f"find_var takes a name: expected a str, received {name!r}. Pass variable.name.")
        scope: Scope | None = self
        while scope is not None:
            found = scope._vars.get(name)
            if found is not None:
                return found
            scope = scope._parent
        return None

    def find_local_var(self, name: str) -> ScopeVariable | None:
        """This scope's own variable of that name, or None."""
        return self._vars.get(name)

    def local_var_names(self) -> list[str]:
        """The names of this scope's own variables, in order of creation."""
        return list(self._vars)

    def erase(self, names: list[str]) -> None:
        """Remove this scope's own variables of those names; unknown names are ignored."""
        for name in names:
            self._vars.pop(name, None)
        self._changes += 1

    def new_scope(self) -> Scope:
        """Create a child scope; it lives until ``drop_kids``."""
        child = Scope(self)
        self._children.append(child)
        return child

    def drop_kids(self) -> None:
        """Remove all child scopes."""
        for child in self._children:
            child._changes = child._edition + 1
            child._parent = None
        self._children = []

    def parent(self) -> Scope | None:
        """The parent scope, or None."""
        return self._parent

    def _kids(self) -> list[Scope]:
        return list(self._children)

    def _remove_from_pool(self) -> None:
        if not self._pooled:
            raise EnforceNotMet(
                "Deleting a nonexistent scope is not allowed or has been done before: expected a scope of its own that"
                " was not removed, received one that was, or a kid. Drop kids with drop_kids of their parent."
            )
        self._pooled = False
        self.drop_kids()
        self.erase(list(self._vars))

    def __repr__(self) -> str:
        return f"<Scope of {len(self._vars)} variables and {len(self._children)} kids>"


def held(scope: Scope, name: str) -> Any:
    """The value of the variable of that name, here or in the nearest ancestor; None if there is none."""
    var = scope.find_var(name)
    return None if var is None else var._holder


_global_scope = Scope()


def global_scope() -> Scope:
    """The scope in which programs run by default; changed by ``scope_guard``.

    Examples:
        >>> y = fluid.layers.fc(fluid.data("x", [None, 4]), 2, param_attr="w")
        >>> startup = fluid.Executor().run(fluid.default_startup_program())
        >>> np.array(fluid.global_scope().find_var("w").get_tensor()).shape
        (4, 2)
    """
    return _global_scope


def _switch_scope(scope: Scope) -> Scope:
    global _global_scope
    previous, _global_scope = _global_scope, scope
    return previous


@contextlib.contextmanager
def scope_guard(scope: Scope) -> Iterator[None]:
    """Make `scope` the global scope within a ``with`` block.

    Examples:
        >>> scope = fluid.Scope()
        >>> with fluid.scope_guard(scope):
        ...     fluid.global_scope() is scope
        True
    """
    previous = _switch_scope(scope)
    try:
        yield
    finally:
        _switch_scope(previous)
