"""Numbers that shapes alone decide (``shape(x)[1] - 1``): they are known while the ops that give them are pending.

An op that needs such numbers (the sizes of ``reshape``, the length of ``sequence_mask``) is bound to them and recorded
like any other; otherwise all that is pending would have to run first, only to learn what was known before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from fluidjax.base.enums import VarType
from fluidjax.eager.kernels import Kernel
from fluidjax.eager.sequences.points import Point
from fluidjax.eager.values import Spec, Value
from lowering.engine.x64 import with_x64

_WHOLE = (VarType.INT32, VarType.INT64, VarType.BOOL)
_FEW = 64  # numbers of a tensor that are followed, and sizes that a kernel is bound to before it runs as it did without


def known(point: Point, value: Value) -> np.ndarray | None:
    """The numbers of an output that is pending at a point, if shapes alone decide them."""
    spec = value.spec
    if spec.dtype not in _WHOLE or not spec.plain or math.prod(spec.shape) > _FEW:
        return None
    return _known(point, value.index)


def _known(point: Point, code: int) -> np.ndarray | None:
    if code < 0:
        return None
    at = _source(point, code)
    if at.sizes is None:
        at.sizes = _computed(at)
    return at.sizes[code - at.first] if at.sizes else None


def _source(point: Point, code: int) -> Point:
    """The point whose op gives an output."""
    while point.first > code:
        point = point.before  # type: ignore[assignment]
    return point


def _spec(point: Point, code: int) -> Spec:
    """The spec of an output before a point, or of a leaf up to it."""
    if code >= 0:
        at = _source(point, code)
        return at.outs[code - at.first]
    while point.before is not None and point.before.leaves > ~code:
        point = point.before
    return point.fresh[~code - point.before.leaves]  # type: ignore[union-attr]


def _computed(at: Point) -> tuple[np.ndarray, ...]:
    """The numbers of all outputs of a point's op; () if not all are known."""
    kernel = at.kernel
    small = all(s is not None and s.dtype in _WHOLE and s.plain and math.prod(s.shape) <= _FEW for s in at.outs)
    if not small or not kernel.plain or kernel.takes_key or kernel.on_host:
        return ()
    of_shape = {slot.name for slot in kernel.definition.inputs if slot.wants == "meta"}
    slots = [(entry, 1) if isinstance(entry, str) else entry for entry in kernel.ins]
    names = [slot for slot, count in slots for _ in range(count)]
    given: list[Any] = []
    for name, code in zip(names, at.codes, strict=True):
        spec = _spec(at, code)
        if name in of_shape and not spec.plain:
            return ()
        given.append(spec.aval if name in of_shape else _known(at, code))
        if given[-1] is None:
            return ()
    return tuple([np.asarray(array) for array in with_x64(kernel._with_key, given)])


class Bound(Kernel):
    """A kernel for which some of its inputs are numbers, and no longer looked at.

    Args:
        kernel: the kernel.
        numbers: those inputs, by place.
    """

    def __init__(self, kernel: Kernel, numbers: dict[int, np.ndarray]) -> None:
        self._begin_as(kernel)
        self._numbers = numbers
        self.given, self.given_fresh, self.movable = None, None, False  # another op alike has numbers of its own

    def _with_key(self, flat: Sequence[Any]) -> tuple[Any, ...]:
        return super()._with_key([self._numbers.get(k, value) for k, value in enumerate(flat)])


def bound(kernel: Kernel, ins: Sequence[Value], point: Point, serial: int) -> Bound | None:
    """A kernel that needs numbers, bound to those that are known at a point; None if that is not enough."""
    if not kernel.direct or kernel.takes_key or kernel.checked:
        return None
    numbers = {}
    for k, value in enumerate(ins):
        found = known(point, value) if value.serial == serial else None
        if found is not None:
            numbers[k] = found
    if not numbers:
        return None
    kinds = _bound.setdefault(kernel, {})
    key = tuple([(k, array.shape, array.tobytes()) for k, array in numbers.items()])
    if key not in kinds:
        if len(kinds) >= _FEW:
            return None
        kinds[key] = Bound(kernel, numbers)
    instead, specs = kinds[key], tuple([value.spec for value in ins])
    outcome = instead.known[specs] if specs in instead.known else instead.infer(specs)
    return None if outcome is None else instead


_bound: WeakKeyDictionary[Kernel, dict[Any, Bound]] = WeakKeyDictionary()
