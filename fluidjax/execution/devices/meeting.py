"""Where devices meet for a stage in which all compute the same: what they read and leave, and who computes it.

Devices with memories of their own compute it together, as one call over all of them. The devices of one host read each
other's arrays where these are: the first one computes for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec
from jaxlib.xla_client import ArrayImpl

from fluidjax.execution.devices.again import Values
from fluidjax.execution.feeding.feed import Handed
from fluidjax.execution.steps.mesh import Spread, Unspreadable, as_rows, rows_of
from lowering.engine.parallel.staged import Stage

_NOTHING = None, None


def in_one_memory(devices: Sequence[jax.Device]) -> bool:
    """Whether devices can read each other's arrays where these are."""
    return all(device.platform == "cpu" for device in devices)


def seen(value: Any) -> Any:
    """A value of a device of this host, as another one reads it: nothing moves. jax overwrites no array seen so."""
    return np.asarray(value) if type(value) is ArrayImpl else jax.tree_util.tree_map(np.asarray, value)


def wait_for(values: Iterable[Any]) -> None:
    """Wait until arrays are computed; raises what their computation did."""
    for value in values:
        if type(value) is ArrayImpl:
            value.block_until_ready()
        elif value is not None and type(value) is not np.ndarray:
            jax.block_until_ready(value)


def meeting(devices: Sequence[jax.Device], stage: Stage) -> InMemory | OverAll:
    """Where these devices meet for a stage."""
    return InMemory(stage) if in_one_memory(devices) else OverAll(devices, stage)


class InMemory:
    """The first device computes for all.

    Attributes:
        program: what is computed.
        spread: over which devices.
        keeps: whether what all devices have to know is left where it is, not overwritten.
    """

    spread = None
    keeps = True

    def __init__(self, stage: Stage):
        self.program = stage.program(0, stage.sums)
        self._sums = stage.sums

    def begin(self, values: Sequence[Values]) -> None:
        """Let the first device know the parts of sums that the others have."""
        for s in self._sums:
            for known, part in zip(values[1:], s.parts[1:], strict=True):
                values[0][part] = Handed(seen(known[part].value))

    def possible(self, reads: Sequence[str], values: Sequence[Values]) -> bool:
        """Whether all that is read is arrays, and the parts of each sum are of one form."""
        parts = [[values[0].get(name) for name in s.parts] for s in self._sums]
        return all(_are_arrays([values[0].get(name)]) for name in reads) and all(map(_are_arrays, parts))

    def whole(self, name: str, values: Sequence[Values]) -> Any:
        """What is read under a name."""
        return values[0][name].value

    def leave(self, name: str, result: Any, values: Sequence[Values], *, everywhere: bool) -> None:
        """Let the devices know a result: all of them, or the first one."""
        values[0][name] = Handed(result)
        others = Handed(seen(result)) if everywhere else None
        for known in values[1:]:
            known[name] = others

    def forget(self) -> None:
        """Let go of all arrays."""


class OverAll:
    """All devices compute, as one call; see ``InMemory``. Each one's arrays of a name are rows of one array."""

    keeps = False

    def __init__(self, devices: Sequence[jax.Device], stage: Stage):
        written = stage.joint()
        self.program = written.program
        self.spread = _Rows(devices, written, frozenset())
        self._sums = stage.sums
        self._rows = rows_of(devices)
        self._passing = {s.parts[0] for s in stage.sums}
        self._joined: dict[str, tuple[Any, Any]] = {}  # by name: the first device's array, and those of all as one

    def begin(self, values: Sequence[Values]) -> None:
        """Let every device know its part of a sum by the name that all use."""
        for s in self._sums:
            for known, part in zip(values, s.parts, strict=True):
                known[s.parts[0]] = known[part]

    def possible(self, reads: Sequence[str], values: Sequence[Values]) -> bool:
        """Whether devices have arrays of one form under all names."""
        return all(_are_arrays([known.get(n) for known in values], rows=True) for n in reads)

    def whole(self, name: str, values: Sequence[Values]) -> Any:
        """The devices' arrays as one. Those of state are copies of the first device's."""
        first = values[0][name].value
        of_first, whole = self._joined.get(name, _NOTHING)
        if of_first is not first:
            whole = as_rows([known[name].value for known in values], self._rows)
            if name not in self._passing:
                self._joined[name] = first, whole
        return whole

    def leave(self, name: str, result: Any, values: Sequence[Values], *, everywhere: bool) -> None:
        """Let the devices know what each of them computed."""
        if name in self._joined:
            self._joined[name] = result.addressable_data(0), result
        for i, known in enumerate(values):
            known[name] = Handed(result.addressable_data(i)) if everywhere or i == 0 else None

    def forget(self) -> None:
        """Let go of all arrays."""
        self._joined.clear()


class _Rows(Spread):
    """Of all that a step takes and leaves, each device has as many rows."""

    def _left(self, value: Any, spec: PartitionSpec) -> Any:
        if value is not None and np.ndim(value) == 0:
            raise Unspreadable("a single number has no rows")
        return super()._left(value, spec)


def _are_arrays(values: Sequence[Any], *, rows: bool = False) -> bool:
    """Whether devices have arrays of one form; with ``rows``: on devices, and no single numbers."""
    arrays = [value.value for value in values if type(value) is Handed]
    kinds = (ArrayImpl,) if rows else (ArrayImpl, np.ndarray)
    plain = len(arrays) == len(values) and all(type(array) in kinds and (array.ndim or not rows) for array in arrays)
    return plain and len({(array.shape, array.dtype) for array in arrays}) == 1
