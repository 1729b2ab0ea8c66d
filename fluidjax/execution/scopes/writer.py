"""The only writer to a Scope: everything that a run leaves there goes through these functions.

Each holds the scope's lock, and does everything that can fail before it changes anything: at any moment the scope holds
the state from before a run or from after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from jaxlib.xla_client import ArrayImpl

from fluidjax.base.containers import take_over
from fluidjax.base.places import Place
from fluidjax.base.scope import Scope, ScopeVariable
from fluidjax.base.values import LoDTensor, Resident
from fluidjax.execution.scopes.exchange import to_holder


class Keeper(Protocol):
    """What keeps arrays between runs, and is referred to by tensors (see ``fluidjax.base.values.Resident``)."""

    names: tuple[str, ...]

    def attached_to(self, scope: Scope, names: Iterable[str]) -> None:
        """From now on the tensors of these names refer to it."""


def write_back(scope: Scope, values: Mapping[str, Any]) -> None:
    """Store values under their names, all or none; tensors that users hold keep their identity."""
    with scope._lock:
        local = scope._vars
        # What can fail comes first: LoDs and tensor arrays are taken to the host.
        stores = [
            (local.get(name) or _variable(scope, name), value if type(value) is ArrayImpl else to_holder(value))
            for name, value in values.items()
            if value is not None
        ]
        for variable, value in stores:
            _store(variable, value)


def _variable(scope: Scope, name: str) -> ScopeVariable:
    """The variable a persistable value goes to: the nearest of that name, else a new one in the outermost scope."""
    found = scope.find_var(name)
    if found is not None:
        return found
    root = scope
    while (parent := root.parent()) is not None:
        root = parent
    return root.var(name)


def _store(var: ScopeVariable, new: Any) -> None:
    """Store a device array, or what ``to_holder`` made."""
    holder = var._holder
    if type(new) is not ArrayImpl:
        if isinstance(new, LoDTensor) and isinstance(holder, LoDTensor):
            holder._set_value(new._value, new._lod)
            if new._value is None:
                holder._set_dims(new.shape())
        elif not take_over(holder, new):
            var._holder = new
    elif type(holder) is LoDTensor:
        holder._array = new
        if holder._lod:
            holder._lod = []
    else:
        var._holder = to_holder(new)


def write_fed(scope: Scope, values: Mapping[str, Any], place: Place) -> None:
    """Store what was fed under the names of persistable variables, in this scope itself."""
    arrays = {name: np.asarray(value) for name, value in values.items()}
    with scope._lock:
        for name, array in arrays.items():
            scope.var(name).get_tensor().set(array, place)


def make(scope: Scope, names: Iterable[str]) -> None:
    """Make empty variables in this scope itself."""
    with scope._lock:
        for name in names:
            scope.var(name)


def make_state(scope: Scope, names: Iterable[str]) -> None:
    """Make the variables that no scope has, empty ones, in the outermost scope."""
    with scope._lock:
        for name in names:
            _variable(scope, name)


def write_column(scope: Scope, name: str, col: int, value: Any) -> None:
    """Put a value into a column of a variable that is a list, made when missing; feed and fetch ops number columns."""
    with scope._lock:
        column = (scope.find_var(name) or scope.var(name)).get_fetch_list()
        column.extend([None] * (col + 1 - len(column)))
        column[col] = value


def move(tensor: LoDTensor, to_device: Callable[[Any], Any]) -> None:
    """Let a tensor that holds a NumPy array hold the same numbers on the device."""
    if isinstance(tensor._stored, np.ndarray):
        tensor._stored = to_device(tensor._stored)


def held_alone(tensor: LoDTensor, to_device: Callable[[Any], Any]) -> Any:
    """The array of a tensor, on the device, that it holds itself from now on, where another program's runs kept it."""
    move(tensor, to_device)
    array = tensor._array
    if tensor._stored is not array:
        tensor._array = array = to_device(array)
    return array


def attach(scope: Scope, state: Keeper, names: Sequence[str], new: Iterable[str]) -> None:
    """Let the tensors ``names`` refer to the arrays of ``state``, in its order; those that are ``new`` are made."""
    with scope._lock:
        for name in new:
            (scope.find_var(name) or scope.var(name)).get_tensor()
        for index, name in enumerate(names):
            variable = scope.find_var(name)
            assert variable is not None
            tensor = variable._holder
            if tensor._lod:
                tensor._lod = []
            tensor._array = Resident(state, index)
        state.attached_to(scope, names)


def drop(scope: Scope, state: Keeper) -> None:
    """Empty the tensors that refer to ``state``: its arrays are gone."""
    with scope._lock:
        for name in state.names:
            variable = scope.find_var(name)
            tensor = variable._holder if variable is not None else None
            if isinstance(tensor, LoDTensor) and isinstance(tensor._stored, Resident) and tensor._stored.of(state):
                tensor._array = None


def empty(scope: Scope, names: Iterable[str]) -> None:
    """Empty tensors whose arrays are gone."""
    with scope._lock:
        for name in names:
            variable = scope.find_var(name)
            if variable is not None and isinstance(variable._holder, LoDTensor):
                variable._holder._array = None
