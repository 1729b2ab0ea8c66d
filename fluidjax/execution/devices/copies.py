"""The state of several physical devices: what each has of every variable that a scope holds.

The scope's tensors hold what device 0 has. Whether they still do tells whether the copies are what a run has to take:
the user, or another program, may have stored something else.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxlib.xla_client import ArrayImpl

from fluidjax.base.scope import Scope, ScopeVariable, held
from fluidjax.base.values import LoDTensor
from fluidjax.execution.devices.meeting import in_one_memory, seen
from fluidjax.execution.feeding.feed import Handed
from fluidjax.execution.scopes.state import on_device
from fluidjax.execution.scopes.writer import empty, held_alone, write_back
from fluidjax.execution.steps.mesh import Unspreadable


class _Seen(NamedTuple):
    """A variable of the scope, and what it held when the copies were made."""

    variable: ScopeVariable
    holder: LoDTensor
    array: Any

    def lasts(self) -> bool:
        holder = self.variable._holder
        return holder is self.holder and type(holder) is LoDTensor and holder._stored is self.array and not holder._lod


class Copies:
    """Every device's copies of a scope's arrays.

    Args:
        devices: the physical devices.

    Attributes:
        on: for each device its arrays, by name.
    """

    def __init__(self, devices: Sequence[jax.Device]):
        self._devices = devices
        self._near = in_one_memory(devices)
        self.on: list[dict[str, Any]] = [{} for _ in devices]
        self._seen: dict[str, _Seen] = {}
        self._scope: Callable[[], Scope | None] = lambda: None
        self._edition = 0

    def clear(self) -> None:
        """Let go of all copies."""
        self._scope = lambda: None
        self._seen.clear()
        for of_device in self.on:
            of_device.clear()

    def lost(self, scope: Scope) -> bool:
        """Whether a failed run took arrays with it, in which case their tensors hold nothing from now on."""
        gone = [n for n, array in self.on[0].items() if type(array) is ArrayImpl and array.is_deleted()]
        if gone:
            empty(scope, gone)
            self.clear()
        return bool(gone)

    def handed(self, device: int) -> dict[str, Any]:
        """All arrays of a device, as they are handed to its next run."""
        return {name: Handed(array) for name, array in self.on[device].items()}

    def current(self, scope: Scope) -> bool:
        """Whether ``scope`` holds what the last run stored, so that every device has its copies of that."""
        same = self._scope() is scope and self._edition == scope._edition
        return same and all(seen.lasts() for seen in self._seen.values())

    def get(self, scope: Scope, name: str, device: int) -> Any:
        """A device's copy of an array that the scope holds; None where it holds nothing."""
        holder = held(scope, name)
        if holder is None or (isinstance(holder, LoDTensor) and not holder._is_initialized()):
            return None
        if type(holder) is not LoDTensor or holder._lod:
            raise Unspreadable(f"{name} in the scope is no plain array")
        array = held_alone(holder, on_device)
        if name not in self._seen or self._seen[name].array is not array:
            self._scope = lambda: None
            for of_device in self.on:
                of_device.pop(name, None)
        self._see(scope, name, array)
        if name not in self.on[device]:
            copy = array if self._near and device else jax.device_put(array, self._devices[device])
            self.on[device][name] = self.placed(copy, device)
        return self.on[device][name]

    def placed(self, value: Any, device: int) -> Any:
        """An array as a device is given it: other devices of this host than the first see it where it is."""
        return seen(value) if self._near and device and type(value) is ArrayImpl else value

    def store(self, scope: Scope, state: Sequence[Mapping[str, Any]]) -> None:
        """Store what the devices leave: shared variables as device 0 has them, and the devices' own.

        None is what a device has lost.
        """
        stored: dict[str, Any] = {}
        for i, left in enumerate(state):
            self.on[i].update(left)
            for name in [n for n, value in left.items() if value is None]:
                del self.on[i][name]
            own = {n: value for n, value in left.items() if n not in stored}
            if i:
                own = {n: _moved(value, self._devices[0]) for n, value in own.items()}
            stored |= own
        write_back(scope, stored)
        known = self._scope() is scope and self._edition == scope._edition
        for name, array in stored.items():
            seen = self._seen.get(name) if known else None
            if seen is not None and seen.variable._holder is seen.holder:
                self._seen[name] = _Seen(seen.variable, seen.holder, array)
            else:
                self._see(scope, name, array)
        self._scope, self._edition = weakref.ref(scope), scope._edition

    def _see(self, scope: Scope, name: str, array: Any) -> None:
        variable = scope.find_var(name)
        assert variable is not None
        self._seen[name] = _Seen(variable, variable._holder, array)


def _moved(value: Any, device: jax.Device) -> Any:
    arrays = isinstance(value, (ArrayImpl, np.ndarray))
    return jax.device_put(value, device, may_alias=False) if arrays else value
