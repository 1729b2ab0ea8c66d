"""Which runs of a kernel use NumPy: the first ones, until a compiled function would have paid off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import numpy as np

from fluidjax.base.flags import FLAGS
from fluidjax.eager.first.evaluator import Evaluator, Meter, TooLong, Unknown
from fluidjax.execution.executables.executable import default_device

_PRICE, _PRICE_OF_CALL = 0.01, 0.002  # seconds of compiling, and the addition per call
_ARRAY = np.ndarray  # looking it up takes as long as a call
_DISPATCH = 1e-5  # seconds that a run of a compiled function takes at least


class First:
    """The runs of a traced kernel on NumPy, for inputs of one signature.

    Attributes:
        left: seconds by which NumPy may exceed the compiled function, over all runs.
    """

    def __init__(self, closed: Any, restore: Callable[[Sequence[Any]], tuple[Any, ...]]) -> None:
        self._meter, self._restore = Meter(), restore
        self._evaluator = Evaluator(closed, self._meter)
        self.left = _PRICE + _PRICE_OF_CALL * self._evaluator.size

    def pays(self) -> bool:
        """Whether another run on NumPy takes less than is left."""
        return self._evaluator.cost < self.left

    def run(self, flat: Sequence[Any]) -> tuple[Any, ...] | None:
        """The outputs of the kernel; None if that would take too long."""
        meter = self._meter
        meter.spent, meter.allowed = 0.0, self.left
        values = [value if value.__class__ is _ARRAY else np.asarray(value) for value in flat]
        try:
            with np.errstate(all="ignore"):
                found = self._evaluator.run(values)
        except TooLong:
            self.left = 0.0
            return None
        self.left -= max(meter.spent - _DISPATCH, 0.0)
        return self._restore(_apart(found, {*map(id, values), *self._evaluator.constants}))


class Later:
    """In place of runs of a kernel that was not traced for a signature: the first one traces it.

    Args:
        add: traces it, and adds its runs if these can be on NumPy.
    """

    def __init__(self, runs: FirstRuns, key: Any, add: Callable[[], object]) -> None:
        self._runs, self._key, self._add = runs, key, add

    def pays(self) -> bool:
        """See First."""
        return True

    def run(self, flat: Sequence[Any]) -> tuple[Any, ...] | None:
        """See First."""
        self._runs.pop(self._key, None)
        self._add()
        return self._runs.run(flat)


class FirstRuns(dict[Any, "First | Later"]):
    """The signatures of a kernel that run on NumPy."""

    def put_off(self, avals: Sequence[Any], add: Callable[[], object]) -> None:
        """Trace inputs of this signature when they run: not, if a block runs them."""
        key = signature_of(avals)
        self[key] = Later(self, key, add)

    def add(self, avals: Sequence[Any], traced: Any) -> None:
        """Run inputs of this signature on NumPy, if possible."""
        if not wanted() or not all(isinstance(aval, jax.ShapeDtypeStruct) for aval in avals):
            return
        tree: Any = jax.tree_util.tree_structure(traced.out_info)
        whole = tree == jax.tree_util.tree_structure((0,) * tree.num_leaves)  # no output is left out
        try:
            found = First(traced.jaxpr, tuple if whole else tree.unflatten)
        except Unknown:
            return
        if found.pays():
            self[signature_of(avals)] = found

    def run(self, flat: Sequence[Any]) -> tuple[Any, ...] | None:
        """The outputs for these inputs, None if they are to be compiled."""
        if not plain_arrays(flat):
            return None
        key = signature_of(flat)
        found = self.get(key)
        if found is None:
            return None
        results = found.run(flat)
        if not found.pays():
            self.pop(key, None)
        return results


def wanted() -> bool:
    """Whether NumPy is used at all: only if arrays are on the host, and runs need not repeat bit for bit."""
    on = FLAGS["FLAGS_eager_numpy"] and not FLAGS["FLAGS_cpu_deterministic"]
    return bool(on) and default_device().platform == "cpu"


def plain_arrays(flat: Sequence[Any]) -> bool:
    """Whether all values are arrays with numbers: of NumPy or on a device, and no tracers."""
    return all(map(_concrete, map(type, flat)))


def signature_of(arrays: Sequence[Any]) -> Any:
    """Shapes and dtypes of arrays."""
    return tuple([(array.shape, array.dtype) for array in arrays])


def _apart(arrays: Sequence[Any], known: set[int]) -> list[np.ndarray]:
    """Arrays that share no memory with each other or with those known by their ids."""
    found: list[np.ndarray] = []
    for array in arrays:
        if array.__class__ is not np.ndarray or array.base is not None or id(array) in known:
            array = np.array(array, order="C")
        found.append(array)
        known.add(id(array))
    return found


@cache
def _concrete(kind: type) -> bool:
    return kind is np.ndarray or (issubclass(kind, jax.Array) and not issubclass(kind, jax.core.Tracer))
