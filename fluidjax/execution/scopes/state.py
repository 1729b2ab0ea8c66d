"""A program's state in a Scope: gathered as arrays before a run."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxlib.xla_client import ArrayImpl

from fluidjax.base.scope import Scope, held
from fluidjax.base.values import LoDTensor
from fluidjax.execution.scopes.exchange import to_lowering
from fluidjax.execution.scopes.writer import move, write_back
from lowering import host_arrays
from lowering.errors import LoweringError, near
from lowering.values import Form

NONE: Mapping[str, Any] = {}
_UNKNOWN = np.dtype(np.float32)  # what a tensor without elements counts as: Fluid knows no type of it


def gather_plain(
    scope: Scope, names: Iterable[str], instead: Mapping[str, Any] = NONE, unmoved: Container[str] = ()
) -> list[Any] | None:
    """The arrays of ``names``; None when one of them is missing, has a LoD or is of another kind.

    A NumPy array that the user set is moved to the device once and stays there, but for those that the caller moves:
    ``unmoved``. ``instead`` takes precedence over the scope.
    """
    arrays = []
    local = scope._vars
    for name in names:
        if name in instead:
            arrays.append(instead[name])
            continue
        var = local.get(name) or scope.find_var(name)
        holder = var._holder if var is not None else None
        if type(holder) is not LoDTensor or holder._lod:
            return None
        if name not in unmoved:
            move(holder, on_device)
        array = holder._array
        if array is None:
            return None
        arrays.append(array)
    return arrays


def on_device(array: Any) -> Any:
    """A device array; one that the user set is copied, as the buffer may be donated to a step that overwrites it."""
    if type(array) is np.ndarray and array.dtype.isnative:
        return host_arrays.to_device(array, copy=True)
    return array if type(array) is ArrayImpl else jax.device_put(array, may_alias=False)


def to_device(scope: Scope, names: Iterable[str]) -> None:
    """Move the NumPy arrays of ``names`` to the device, where a run will leave them: all runs then have one form."""
    for name in names:
        holder = held(scope, name)
        if type(holder) is LoDTensor and not holder._lod:
            move(holder, on_device)


def distinct(arrays: list[Any]) -> list[Any]:
    """The same arrays, with a copy of each repeated one: a buffer can be donated only once."""
    if len({id(a) for a in arrays}) == len(arrays):
        return arrays
    seen: set[int] = set()
    found = []
    for array in arrays:
        found.append(jnp.array(array, copy=True) if id(array) in seen else array)
        seen.add(id(array))
    return found


def is_plain(scope: Scope, name: str) -> bool:
    """Whether a variable holds a tensor without LoD."""
    holder = held(scope, name)
    return isinstance(holder, LoDTensor) and not holder._lod and holder._is_initialized()


def gather_values(scope: Scope, names: Iterable[str], *, exact: bool) -> dict[str, Any]:
    """The values of any kind that the scope holds under ``names``, or shapes alone; missing ones are left out."""
    found = {}
    for name in names:
        holder = held(scope, name)
        value = to_lowering(holder, exact=exact)
        if value is None and isinstance(holder, LoDTensor) and holder.shape() != [0]:
            value = Form(tuple(holder.shape()), _UNKNOWN)
        if value is not None:
            found[name] = value
    return found


def private_copy(scope: Scope, names: Iterable[str]) -> Scope:
    """A scope of its own with copies of what ``scope`` holds under ``names``; missing ones are left out."""
    private = Scope()
    with scope._lock:
        write_back(private, jax.tree_util.tree_map(np.array, gather_values(scope, names, exact=True)))
    return private


def on_host(values: Sequence[Any]) -> list[Any]:
    """Values with every array on the host."""
    return jax.tree_util.tree_map(np.asarray, list(values))


def checked_fetches(scope: Scope, names: Sequence[str], values: Sequence[Any]) -> list[Any]:
    """The values that a run fetched under ``names``; LoweringError for one that nothing computed."""
    fetched = []
    for name, value in zip(names, values, strict=True):
        if value is None:
            raise NothingToFetch(name, ())
        # A fetch that is also state must not share its buffer, which a later run may give away.
        fetched.append(value if scope.find_var(name) is None else _copied(value))
    return fetched


class NothingToFetch(LoweringError):
    """A fetch without a value; one of the ``known`` names may have been meant."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(_nothing_to_fetch(name, known))
        self.name = name

    def told_of(self, program: Any, fetched: Iterable[Any]) -> None:
        """Say so where what was ``fetched`` is a Variable of another program."""
        for var in fetched:
            block = getattr(var, "block", None)
            if block is not None and var.name == self.name and block.program is not program:
                self.args = (
                    f"fetch {self.name!r} has no value: it is a variable of another program"
                    f"\n  expected: a variable of the program that is run, {program!r}"
                    f"\n  received: one of {block.program!r}"
                    "\n  what to do: give that program to Executor.run, or fetch a variable of this one",
                )


def _nothing_to_fetch(name: str, known: Iterable[str]) -> str:
    close = [] if name in known else near(name, known)
    meant = (
        f"fetch {close[0]!r}, if that was meant" if close else "fetch another variable, or initialize this one first"
    )
    return (
        f"fetch {name!r} has no value\n  expected: a variable that the program computes or the scope holds"
        f"\n  received: {'one that no op wrote' if name in known else 'a name that is neither'}\n  what to do: {meant}"
    )


def _copied(value: Any) -> Any:
    return jax.tree_util.tree_map(lambda leaf: np.array(leaf, copy=True), value)
