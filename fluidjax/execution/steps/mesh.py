"""Steps over several physical devices at once: what they are given, and what happens to their results.

The state is the same on all of them, but for parameters that are divided: each device has a part of these, and their
arrays are the whole. Feeds and fetches of each device are shares of the rows of one array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib.xla_client import ArrayImpl

from fluidjax.execution.steps.in_place import in_place
from fluidjax.execution.steps.spreading import Spreading, Step, on_each_device
from lowering.engine.parallel.spread import SpreadProgram
from lowering.host_arrays import empty_apart
from lowering.mesh import AXIS

_SHARED, _DIVIDED = PartitionSpec(), PartitionSpec(AXIS)


class Unspreadable(Exception):
    """Not an error: the devices cannot each run this as one step, so all of them are written out for one device."""


class Spread(Spreading):
    """A program spread over devices.

    Args:
        devices: the physical devices, the executor's first.
        written: the program of each.
        fed: what each is fed for itself.
    """

    alike = True

    def __init__(self, devices: Sequence[jax.Device], written: SpreadProgram, fed: frozenset[str]):
        self.written = written
        self._fed = fed
        self._devices = tuple(devices)
        self._mesh = Mesh(np.array(devices), (AXIS,))
        self._alike = NamedSharding(self._mesh, _SHARED)
        self._rows = NamedSharding(self._mesh, _DIVIDED)

    def to_all(self, array: Any, name: str) -> Any:
        """An array of the state, on all devices; what the user set is copied, as the buffer may be donated."""
        sharding = self._sharding(name)
        if type(array) is ArrayImpl and array.sharding.is_equivalent_to(sharding, array.ndim):
            return array
        return jax.device_put(array, sharding, may_alias=False)

    def room(self, name: str, like: np.ndarray) -> tuple[np.ndarray, Any] | None:
        """See ``Spreading``: [devices, rows of each, ...] where each has a share, else [1, ...].

        There is none for a parameter that is divided.
        """
        if name in self.written.parts:
            return None
        own, devices = name in self._fed, self._devices
        count = len(devices) if own else 1
        shape = (len(like) // count, *like.shape[1:]) if own else like.shape
        memory = empty_apart(count, shape, like.dtype)
        arrays = [in_place(memory[i % count], device) for i, device in enumerate(devices)]
        if any(array is None for array in arrays):
            return None
        whole = as_rows(arrays, self._rows) if own else _everywhere(arrays, self._alike)
        return memory, whole

    def read(self, left: tuple[Any, ...], count: int) -> tuple[Any, ...]:
        """See ``Spreading``. jax's own function looks at what each device has through several objects of Python's."""
        arrays, flags, faults, *others = left
        found = [*arrays[:count], *map(self._on_host, arrays[count:])]
        return found, flags, faults if faults is None else self._on_host(faults), *others

    def _on_host(self, array: jax.Array) -> Any:
        if array.sharding == self._alike:
            return np.asarray(array.addressable_data(0))
        if array.sharding != self._rows:
            return array
        return np.concatenate([np.asarray(array.addressable_data(i)) for i in range(len(self._devices))])

    def _spec(self, name: str) -> PartitionSpec:
        """How a variable of the state is divided among the devices."""
        axis = self.written.parts.get(name)
        return _SHARED if axis is None else PartitionSpec(*(None,) * axis, AXIS)

    def _sharding(self, name: str) -> NamedSharding:
        return NamedSharding(self._mesh, self._spec(name)) if name in self.written.parts else self._alike

    def draws(self, name: str) -> Any:
        """See ``SpreadProgram.draws``: the number of the device that is being traced for."""
        return jnp.array(self.written.draws(name), jnp.uint32)[jax.lax.axis_index(AXIS)]

    def over(
        self, step: Step, replaced: Sequence[str], inputs: Sequence[str], outputs: Sequence[str], *, donate: bool
    ) -> Step:
        """Every device's ``step``, as one function over all devices."""
        of_state = tuple(map(self._spec, replaced))
        of_values = [_DIVIDED if n in self._fed else self._spec(n) for n in inputs]
        of_outputs = [_DIVIDED if self.written.divided(n) else self._spec(n) for n in outputs]

        apart = on_each_device(step, donate=donate)

        def on_each(replaced: Any, values: Any, seed: Any) -> Any:
            state, left, overflows, faults = apart(replaced, values, seed)
            left = [self._left(v, spec) for v, spec in zip(left, of_outputs, strict=True)]
            return state, left, overflows, faults

        specs = (of_state, tuple(of_values), _SHARED)
        results = (of_state, of_outputs, _SHARED, _SHARED)
        return jax.shard_map(on_each, mesh=self._mesh, in_specs=specs, out_specs=results, check_vma=False)

    def jitted(
        self, run: Callable[..., Any], replaced: Sequence[str], inputs: Sequence[str], donated: tuple[int, ...]
    ) -> Any:
        """See ``Spreading``; says where the arguments of a step of these inputs are."""
        state = tuple(map(self._sharding, replaced))
        values = tuple(self._rows if n in self._fed else self._sharding(n) for n in inputs)
        return jax.jit(run, donate_argnums=donated, in_shardings=(state, values, self._alike))

    def _left(self, value: Any, spec: PartitionSpec) -> Any:
        if value is not None and not isinstance(value, (jax.Array, np.ndarray)):
            raise Unspreadable(f"a {type(value).__name__} is fetched")
        return jnp.atleast_1d(value) if spec == _DIVIDED and value is not None else value


def rows_of(devices: Sequence[jax.Device]) -> NamedSharding:
    """Where an array is of which each device has as many rows."""
    return NamedSharding(Mesh(np.array(devices), (AXIS,)), _DIVIDED)


_avals: dict[Any, Any] = {}  # what jax calls rows of a shape, a data type and a place


def as_rows(arrays: Sequence[jax.Array], rows: NamedSharding) -> jax.Array:
    """Arrays of one form, one on each device in order, as rows of one array; nothing moves.

    jax's own function for this checks all that is certain here, which takes four times as long: it is asked once for
    each form, and says what jax calls it (``aval``).
    """
    first, *others = arrays[0].shape
    form = (first * len(arrays), *others), arrays[0].dtype, rows
    aval = _avals.get(form)
    if aval is None:
        whole = jax.make_array_from_single_device_arrays(form[0], rows, list(arrays))
        _avals[form] = whole.aval
        return whole
    return ArrayImpl(aval, rows, list(arrays), committed=True, _skip_checks=True)


def _everywhere(arrays: Sequence[jax.Array], alike: NamedSharding) -> jax.Array:
    """Equal arrays, one on each device in order, as one that all of them have."""
    return jax.make_array_from_single_device_arrays(arrays[0].shape, alike, list(arrays))


def on_one_device(array: Any) -> Any:
    """An array that all devices share, from the first of them; a divided one as a whole; others unchanged."""
    if type(array) is not ArrayImpl or len(array.sharding.device_set) == 1:
        return array
    return array.addressable_data(0) if array.is_fully_replicated else np.asarray(array)
