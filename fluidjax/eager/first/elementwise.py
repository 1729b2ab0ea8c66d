"""Primitives that compute each element from the elements at the same position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fluidjax.eager.first import borrowed
from fluidjax.eager.first.notation import Equation, Function, Make


def _divide(eqn: Equation) -> Function:
    if eqn.dtype.kind != "f":
        return _quotient
    return _times_inverse if eqn.literals[1] else np.true_divide


def _times_inverse(x: Any, constant: Any) -> Any:
    """XLA divides by no constants."""
    return x * np.reciprocal(constant)


def _quotient(x: Any, y: Any) -> Any:
    """Integer division as in XLA: towards zero, and -1 (all bits set) for a divisor of zero."""
    divisor = np.where(y == 0, y.dtype.type(1), y)
    rest = np.fmod(x, divisor)
    return np.where(y == 0, ~y.dtype.type(0), np.floor_divide(x - rest, divisor))


def _remainder(eqn: Equation) -> Function:
    if eqn.dtype.kind == "f":
        return np.fmod
    return lambda x, y: np.where(y == 0, x, np.fmod(x, np.where(y == 0, y.dtype.type(1), y)))


def _sign(eqn: Equation) -> Function:
    return (lambda x: np.copysign(np.sign(x), x)) if eqn.dtype.kind == "f" else np.sign


def _integer_pow(eqn: Equation) -> Function | None:
    y = eqn.params["y"]
    return (lambda x: _power(x, y)) if eqn.dtype.kind == "f" or y >= 0 else None


def _power(x: Any, y: int) -> Any:
    """Products of the powers of two."""
    found, rest = None, abs(y)
    while rest:
        if rest & 1:
            found = x if found is None else found * x
        rest >>= 1
        x = x * x if rest else x
    if found is None:
        return np.ones_like(x)
    return np.reciprocal(found) if y < 0 else found


def _pow(eqn: Equation) -> Function | None:
    if eqn.dtype.kind != "f" or eqn.ins[1].dtype != eqn.dtype:
        return None
    return np.power if True in eqn.literals else borrowed.elementwise("pow")(eqn)


def _round(eqn: Equation) -> Function:
    return np.rint if int(eqn.params["rounding_method"]) == 1 else _away_from_zero


def _away_from_zero(x: Any) -> Any:
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(x.dtype.type(1), x), whole)


def _shift_right(kind: str) -> Make:
    """``kind``: whether to shift as signed numbers ("i"), repeating the sign bit, or as unsigned ones ("u")."""

    def make(eqn: Equation) -> Function:
        dtype, bits = eqn.dtype, np.dtype(f"{kind}{eqn.dtype.itemsize}")
        return lambda x, y: np.right_shift(x.view(bits), y.view(bits)).view(dtype)

    return make


def _convert(eqn: Equation) -> Function:
    given, wanted = eqn.ins[0].dtype, eqn.dtype
    if given == wanted:
        return lambda x: x
    if given.kind == "f" and wanted.kind in "iu":
        return lambda x: _saturated(x, wanted)
    return lambda x: x.astype(wanted)


def _saturated(x: Any, dtype: np.dtype[Any]) -> Any:
    """Floats as integers; those beyond the range become its bounds, and NaN becomes 0."""
    info = np.iinfo(dtype)
    # The bounds as floats may be rounded outwards, where conversion itself is undefined, so these values are replaced.
    low, high = x <= x.dtype.type(info.min), x >= x.dtype.type(info.max)
    inner = np.where(low | high | np.isnan(x), x.dtype.type(0), x).astype(dtype)
    return np.where(high, dtype.type(info.max), np.where(low, dtype.type(info.min), inner))


def _select(eqn: Equation) -> Function | None:
    if eqn.ins[0].dtype != np.bool_ or len(eqn.ins) != 3:
        return None
    return lambda which, no, yes: np.where(which, yes, no)


def _reduce_precision(eqn: Equation) -> Function | None:
    """The identity for numbers without excess bits (it only prevents XLA from fusing operations), or float32's bits."""
    info, bits = np.finfo(eqn.dtype), (eqn.params["exponent_bits"], eqn.params["mantissa_bits"])
    if bits[0] >= info.nexp and bits[1] >= info.nmant:
        return _identity
    single = np.finfo(np.float32)
    return _as_single if eqn.dtype == np.float64 and bits == (single.nexp, single.nmant) else None


def _as_single(x: Any) -> Any:
    """Rounded to float32; XLA makes zeros of numbers that are subnormal there."""
    found = x.astype(np.float32).astype(np.float64)
    return np.where(np.abs(found) < np.finfo(np.float32).tiny, np.copysign(0.0, x), found)


def _numbers(function: Function) -> Make:
    """For numbers, not for booleans."""
    return lambda eqn: function if eqn.ins[0].dtype != np.bool_ else None


def _any(function: Function) -> Make:
    return lambda eqn: function


def _identity(x: Any) -> Any:
    return x


def _identities(*values: Any) -> Any:
    return values


_ON_NUMBERS: dict[str, Callable[..., Any]] = {
    "abs": np.abs, "add": np.add, "add_any": np.add, "ceil": np.ceil, "floor": np.floor, "is_finite": np.isfinite,
    "max": np.maximum, "min": np.minimum, "mul": np.multiply, "neg": np.negative, "nextafter": np.nextafter,
    "shift_left": np.left_shift, "sqrt": np.sqrt, "square": np.square, "sub": np.subtract,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
}  # fmt: skip
_ON_ANY: dict[str, Callable[..., Any]] = {
    "and": np.bitwise_and, "copy": np.copy, "eq": np.equal, "ge": np.greater_equal,
    "gt": np.greater, "le": np.less_equal, "lt": np.less, "ne": np.not_equal, "not": np.invert, "or": np.bitwise_or,
    "optimization_barrier": _identities, "stop_gradient": _identity, "xor": np.bitwise_xor,
}  # fmt: skip
_BORROWED = (
    "acos acosh asin asinh atan atan2 atanh cbrt cos cosh digamma erf erf_inv erfc exp exp2 expm1 lgamma log log1p "
    "logistic rsqrt sin sinh tan tanh"
)

PRIMITIVES: dict[str, Make] = {
    **{name: borrowed.elementwise(name) for name in _BORROWED.split()},
    **{name: _numbers(function) for name, function in _ON_NUMBERS.items()},
    **{name: _any(function) for name, function in _ON_ANY.items()},
    "convert_element_type": _convert,
    "div": _divide,
    "integer_pow": _integer_pow,
    "pow": _pow,
    "reduce_precision": _reduce_precision,
    "rem": _remainder,
    "round": _round,
    "select_n": _select,
    "shift_right_arithmetic": _shift_right("i"),
    "shift_right_logical": _shift_right("u"),
    "sign": _sign,
}
