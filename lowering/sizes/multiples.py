"""Numbers of rows that are multiples of others: a reshape makes ``k`` rows of each, and another one joins them again.

What a traced number is a multiple of is remembered beside it, while it lives. So rows that were parted and joined have
the very number of rows that they had before, and go with others of that number.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import numpy as np

from lowering.values import Array, is_concrete


class _Product(NamedTuple):
    value: weakref.ref[Any]
    base: Any
    factor: int


_PRODUCTS: dict[int, _Product] = {}  # by the identity of a tracer, which has no hash


def times(number: Array, factor: int) -> Array:
    """``number * factor``, the same object each time."""
    if is_concrete(number) or factor == 1:
        return number * np.int32(factor)
    base, before = _parts(number)
    factor *= before
    for known in list(_PRODUCTS.values()):
        value = known.value()
        if known.base is base and known.factor == factor and value is not None:
            return value
    value = base * np.int32(factor)
    key = id(value)
    _PRODUCTS[key] = _Product(weakref.ref(value, lambda _: _PRODUCTS.pop(key, None)), base, factor)
    return value


def part(number: Array, factor: int) -> Array | None:
    """``number / factor`` where ``number`` is known to be a multiple of it, else None."""
    if is_concrete(number):
        return None if int(number) % factor else number // np.int32(factor)
    base, known = _parts(number)
    if known % factor:
        return None
    return base if known == factor else times(base, known // factor)


def _parts(number: Array) -> tuple[Array, int]:
    found = _PRODUCTS.get(id(number))
    return (found.base, found.factor) if found is not None and found.value() is number else (number, 1)
