"""What branches and loops carry: variables, Python numbers turned into variables, and containers of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from fluidjax.base.enums import INTEGERS, VarType, to_var_type
from fluidjax.base.errors import explain
from fluidjax.framework import Variable, default_main_program
from fluidjax.layers.tensor import assign, cast, fill_constant
from fluidjax.to_static.checks import never

# The element types of Python's numbers.
KINDS: dict[type, str] = {bool: "bool", int: "int64", float: "float64"}


class Unset:
    """The value of a name that has none: any use raises UnboundLocalError.

    Args:
        name: the name.
        why: the reason, if it is not simply that nothing was assigned.
    """

    def __init__(self, name: str, why: str | None = None):
        self._name, self._why = name, why

    @staticmethod
    def explained(value: Any) -> bool:
        """Whether a name was assigned, but what it was given cannot be carried: no placeholder stands for that."""
        return isinstance(value, Unset) and value._why is not None

    def _fail(self, *args: Any, **kwargs: Any) -> NoReturn:
        if self._why is None:
            raise UnboundLocalError(f"local variable {self._name!r} is used before it has a value")
        raise UnboundLocalError(self._why)

    def __repr__(self) -> str:
        return f"<{self._name}: no value>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._fail()

    __bool__ = __call__ = __iter__ = __len__ = __getitem__ = __setitem__ = _fail
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _fail
    __pow__ = __rpow__ = __floordiv__ = __mod__ = __neg__ = __lt__ = __le__ = __gt__ = __ge__ = _fail
    __int__ = __float__ = __index__ = __array__ = _fail


def is_variable(value: Any) -> bool:
    """Whether a value is a variable of a program under construction; eager variables count as Python values here."""
    return isinstance(value, Variable) and Variable in type(value).__mro__


class Number(Variable):
    """A variable that represents a Python number: combined with another variable, it takes that one's type.

    So ``i * x`` has the type of ``x`` if ``i`` is a loop counter, as in Python.
    """


def as_number(var: Variable) -> Variable:
    """Mark a variable as a Python number."""
    if type(var) is Variable:
        var.__class__ = Number
    return var


def _operator(method: str) -> Callable[[Any, Any], Any]:
    plain = getattr(Variable, method)

    def operate(self: Variable, other: Any) -> Any:
        foreign = is_variable(other) and not isinstance(other, Number)
        one, two = _same_type(self, other, method)
        result = getattr(Variable, method)(one, two)
        return result if foreign or result is NotImplemented else as_number(result)

    operate.__doc__ = plain.__doc__
    return operate


def _same_type(one: Variable, two: Any, method: str) -> tuple[Variable, Any]:
    if is_variable(two) and two.dtype != one.dtype:
        if not isinstance(two, Number):
            return _cast(one, two.dtype), two
        wider = VarType.FP64 if VarType.FP64 in (one.dtype, two.dtype) else VarType.INT64
        return _cast(one, wider), _cast(two, wider)
    whole = one.dtype in INTEGERS
    if whole and (isinstance(two, float) or method in ("__truediv__", "__rtruediv__")):
        return _cast(one, VarType.FP64), _cast(two, VarType.FP64) if is_variable(two) else two
    return one, two


def _cast(var: Variable, dtype: VarType) -> Variable:
    return var if var.dtype == dtype else cast(var, dtype)


_METHODS = (
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__"),
    *("__pow__", "__rpow__", "__floordiv__", "__mod__"),
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"),
)


def _give_operators() -> None:
    for method in _METHODS:
        setattr(Number, method, _operator(method))
    Number.__hash__ = Variable.__hash__  # type: ignore[method-assign]


_give_operators()


class Optional(Variable):
    """A variable that a run may find to be None; it then holds a placeholder (see ``absent``).

    Attributes:
        present: whether it is not None: bool [1].
    """

    present: Variable

    @staticmethod
    def over(var: Variable, present: Variable) -> Optional:
        """A variable of its own as one that may be None."""
        var.__class__ = Optional
        assert isinstance(var, Optional)
        var.present = present
        return var


def presence(value: Any) -> Variable:
    """Whether a value is not None, as a variable: bool [1]."""
    return value.present if isinstance(value, Optional) else fill_constant([1], "bool", value is not None)


def may_be_none(one: Any, two: Any) -> bool:
    """Whether one of two values that a name may have is None, or perhaps None, and both fit an ``Optional``."""
    none = any(value is None or isinstance(value, Optional) for value in (one, two))
    return none and all(value is None or can_be_variable(value) for value in (one, two))


# --- variables of values ----------------------------------------------------------------------------------------------


def plain_number(value: Any) -> Any:
    """Convert NumPy scalars to Python's."""
    return value.item() if isinstance(value, np.generic) else value


def can_be_variable(value: Any) -> bool:
    """Whether a value is a variable, or a number or array that can become one."""
    return is_variable(value) or type(plain_number(value)) in KINDS or isinstance(value, np.ndarray)


def to_variable(value: Any) -> Variable:
    """A value as a variable of the program under construction; Python's numbers have shape [1]."""
    if is_variable(value):
        return value
    if isinstance(value, np.ndarray):
        return assign(value)
    value = plain_number(value)
    return as_number(filled([1], KINDS[type(value)], value))


def filled(shape: Any, dtype: Any, value: Any) -> Variable:
    """A constant through which gradients can flow to what replaces it."""
    out = fill_constant(shape=list(shape), dtype=dtype, value=value)
    out.stop_gradient = to_var_type(dtype) in INTEGERS
    return out


def like(var: Variable, value: Any) -> Variable:
    """A constant with the type of `var` and its shape if all dimensions are known, otherwise shape [1]."""
    known = var.shape and all(n >= 0 for n in var.shape)
    out = filled(var.shape if known else [1], var.dtype, value)
    return as_number(out) if isinstance(var, Number) else out


def absent(var: Variable) -> Variable:
    """The placeholder for `var` where nothing was assigned: NaN, the smallest integer, False."""
    if var.dtype == VarType.BOOL:
        return like(var, False)
    if var.dtype in INTEGERS:
        return like(var, 0 if var.dtype == VarType.UINT8 else -(2**31) if var.dtype != VarType.INT8 else -128)
    return like(var, float("nan"))


def truth(value: Any) -> Variable:
    """A variable as a single boolean: as in eager mode, a number is true if it is positive.

    Raises ValueError for several elements; inside a branch or loop, the error is raised by a run that gets there.
    """
    count = 1
    for size in value.shape:
        count *= abs(size)
    if count != 1:
        error = ValueError(
            explain(
                f"variable {value.name} decides a branch or loop",
                "one element",
                f"shape {list(value.shape)}",
                "reduce it with layers.reduce_all, layers.reduce_any, layers.reduce_sum or the like",
            )
        )
        if default_main_program().current_block_idx == 0:
            raise error
        return never(error)
    if value.dtype == VarType.BOOL:
        return value
    return Variable.__gt__(value, fill_constant([1], value.dtype, 0))


# --- containers -------------------------------------------------------------------------------------------------------


def is_container(value: Any) -> bool:
    """Whether branches and loops carry a value's items one by one."""
    return type(value) in (list, dict) or (isinstance(value, (tuple, dict)) and not is_variable(value))


def items_of(value: Any) -> list[Any]:
    """The items of a container."""
    return list(value.values()) if isinstance(value, dict) else list(value)


def remade(value: Any, items: list[Any]) -> Any:
    """A container like `value` with other items."""
    if isinstance(value, dict):
        made = type(value)() if type(value) is not dict else {}
        made.update(zip(value, items, strict=True))
        return made
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*items)
    return type(value)(items)


def copied(value: Any, origin: dict[int, Any] | None = None) -> Any:
    """Copies of containers with the same contents. `origin` maps the id of a copy to (the copy, its original)."""
    if not is_container(value):
        return value
    copy = remade(value, [copied(item, origin) for item in items_of(value)])
    if origin is not None:
        origin[id(copy)] = copy, value
    return copy


def same_form(one: Any, two: Any) -> bool:
    """Whether two values are containers of one type with equally many items and the same keys."""
    if not is_container(one) or type(one) is not type(two) or len(one) != len(two):
        return False
    return not isinstance(one, dict) or list(one) == list(two)


def leaves(value: Any) -> Iterator[Any]:
    """The innermost items of containers."""
    if not is_container(value):
        yield value
        return
    for item in items_of(value):
        yield from leaves(item)


def refilled(original: Any, form: Any, items: list[Any]) -> Any:
    """A list or dict with its items replaced in place, so that its other names see them; `form` has a dict's keys."""
    if isinstance(original, list):
        original[:] = items
        return original
    if type(original) is dict:
        found = dict(zip(form, items, strict=True))
        original.clear()
        original.update(found)
        return original
    return remade(form, items)


def equal(one: Any, two: Any) -> bool:
    """Whether two Python values are identical, or equal and of the same type."""
    if one is two:
        return True
    if type(one) is not type(two) or is_variable(one) or isinstance(one, np.ndarray):
        return False
    try:
        return bool(one == two)
    except Exception:
        return False
