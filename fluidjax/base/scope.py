"""Scopes: where values live, by name. A scope sees its own variables and those of the scopes around it."""

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
    """One variable of a Scope: nothing yet, or one value of a kind that stays.

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
        """The LoDTensor; an empty one is made when the variable holds nothing yet."""
        return self._get(LoDTensor)

    def get_selected_rows(self) -> SelectedRows:
        """The SelectedRows; empty ones are made when the variable holds nothing yet."""
        return self._get(SelectedRows)

    def get_lod_tensor_array(self) -> LoDTensorArray:
        """The LoDTensorArray; an empty one is made when the variable holds nothing yet."""
        return self._get(LoDTensorArray)

    def is_int(self) -> bool:
        """Whether the variable holds a plain int."""
        return type(self._holder) is int

    def get_int(self) -> int:
        """The plain int. Raises EnforceNotMet when the variable holds none."""
        return self._held_of(int)

    def set_int(self, value: int) -> None:
        """Hold a plain int."""
        self._get(int)
        self._holder = int(value)

    def is_float(self) -> bool:
        """Whether the variable holds a plain float."""
        return type(self._holder) is float

    def get_float(self) -> float:
        """The plain float. Raises EnforceNotMet when the variable holds none."""
        return self._held_of(float)

    def set_float(self, value: float) -> None:
        """Hold a plain float."""
        self._get(float)
        self._holder = float(value)

    def get_bytes(self) -> bytes:
        """The plain bytes."""
        return self._get(bytes)

    def set_scope(self, scope: Scope) -> None:
        """Hold a scope."""
        self._holder = scope

    def get_fetch_list(self) -> FetchList:
        """The list that fetch ops fill."""
        return self._get(FetchList)

    def get_reader(self) -> Any:
        """The reader that the variable holds."""
        return self._holder

    def get_lod_rank_table(self) -> LodRankTable:
        """The rank table that the variable holds; an empty one when it holds nothing yet."""
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


class Scope:
    """Variables by name, inside an optional parent scope.

    ``_edition`` counts the changes of which variable a name finds, here or in the scopes around it. ``_lock`` is held,
    for all scopes inside one another, by whoever changes values or reads several that belong together.

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
        self._changes = 0
        self._lock: Any = threading.RLock() if _parent is None else _parent._lock

    @property
    def _edition(self) -> int:
        return self._changes if self._parent is None else self._changes + self._parent._edition

    def var(self, name: str = "") -> ScopeVariable:
        """This scope's own variable of that name, made when missing; an empty name makes a nameless one."""
        if not name:
            name = f"@anonymous@{self._anonymous}"
            self._anonymous += 1
        found = self._vars.get(name)
        if found is None:
            found = self._vars[name] = ScopeVariable(name)
            self._changes += 1
        return found

    def find_var(self, name: str) -> ScopeVariable | None:
        """The variable of that name here or in the nearest scope around, or None. TypeError for what is no name."""
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
        """The names of this scope's own variables, in the order they were made."""
        return list(self._vars)

    def erase(self, names: list[str]) -> None:
        """Drop this scope's own variables of those names; unknown names are ignored."""
        for name in names:
            self._vars.pop(name, None)
        self._changes += 1

    def new_scope(self) -> Scope:
        """A scope inside this one; it lives until ``drop_kids``."""
        child = Scope(self)
        self._children.append(child)
        return child

    def drop_kids(self) -> None:
        """Drop all scopes inside this one."""
        for child in self._children:
            child._changes = child._edition + 1
            child._parent = None
        self._children = []

    def parent(self) -> Scope | None:
        """The scope around this one, or None."""
        return self._parent

    def _kids(self) -> list[Scope]:
        return list(self._children)

    def _remove_from_pool(self) -> None:
        self.drop_kids()
        self.erase(list(self._vars))

    def __repr__(self) -> str:
        return f"<Scope of {len(self._vars)} variables and {len(self._children)} kids>"


def held(scope: Scope, name: str) -> Any:
    """What the variable of that name holds, here or in the nearest scope around; None where nothing does."""
    var = scope.find_var(name)
    return None if var is None else var._holder


_global_scope = Scope()


def global_scope() -> Scope:
    """The scope in which programs run by default; ``scope_guard`` changes it.

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
