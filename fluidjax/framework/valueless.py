"""What a variable of a program cannot be asked: it holds no numbers while the program is built."""

from __future__ import annotations

import warnings
from typing import Any, NoReturn

import numpy as np

from fluidjax.base.enums import VarType
from fluidjax.base.errors import explain

# NumPy's name of an operator, and what its right operand calls it.
_OPERATORS = (
    "add:radd subtract:rsub multiply:rmul divide:rtruediv power:rpow"
    " less:gt less_equal:ge greater:lt greater_equal:le equal:eq not_equal:ne"
)
REFLECTED = dict(pair.split(":") for pair in _OPERATORS.split())


class Valueless:
    """The part of ``Variable`` that refuses to be a number, an array or an eager variable, and tells what to do."""

    name: Any
    type: Any
    dtype: Any

    def _no_number(self, wanted: str) -> NoReturn:
        raise TypeError(
            explain(
                f"{wanted} of Variable {self.name!r}",
                "a number or an array",
                "a variable of a program, which holds no value until the program runs",
                f"fetch it: exe.run(program, feed=..., fetch_list=[{self.name!r}]); or write under"
                " fluid.dygraph.guard(), where variables have values",
            )
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """An array of the variable itself, as of any object: lists of variables become arrays of them."""
        if dtype is not None and np.dtype(dtype) != object:
            self._no_number("np.array()")
        array = np.empty((), object)
        array[()] = self
        return array

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """An operator with a number of NumPy's on its left makes an op; other functions of NumPy find no numbers."""
        if method == "__call__" and inputs[0] is not self and ufunc.__name__ in REFLECTED:
            return getattr(self, f"__{REFLECTED[ufunc.__name__]}__")(inputs[0])
        self._no_number(f"np.{ufunc.__name__}()")

    def __float__(self) -> NoReturn:
        self._no_number("float()")

    def __int__(self) -> NoReturn:
        self._no_number("int()")

    def __bool__(self) -> bool:
        """True, as for any object; warns if used as a condition, which does not depend on its value."""
        if self.type == VarType.LOD_TENSOR and self.dtype == VarType.BOOL:
            warnings.warn(
                explain(
                    f"Variable {self.name!r} is used as a condition of Python's",
                    "something that is true or false while the program is built",
                    "a variable, which counts as true whatever it will hold",
                    "use fluid.layers.cond or while_loop, or fluid.dygraph.declarative",
                ),
                stacklevel=2,
            )
        return True

    def __iter__(self) -> NoReturn:
        raise TypeError(
            f"Variable {self.name} cannot be iterated: a program has no values while it is built. "
            "Use fluid.layers.unstack or fluid.layers.While."
        )

    # Eager mode only.

    def detach(self) -> NoReturn:
        """Eager mode only."""
        self._eager_only("detach")

    def numpy(self) -> NoReturn:
        """Eager mode only."""
        self._eager_only("numpy")

    def set_value(self, value: Any) -> NoReturn:
        """Eager mode only."""
        self._eager_only("set_value")

    def backward(self, backward_strategy: Any = None) -> NoReturn:
        """Eager mode only."""
        self._eager_only("backward")

    def gradient(self) -> NoReturn:
        """Eager mode only."""
        self._eager_only("gradient")

    def clear_gradient(self) -> NoReturn:
        """Eager mode only."""
        self._eager_only("clear_gradient")

    def _eager_only(self, method: str) -> NoReturn:
        raise AssertionError(
            f"Variable {self.name}: {method}() belongs to eager mode, and this variable is part of a Program: it has "
            "no value of its own. Fetch it with Executor.run(fetch_list=[...]), or read it from the Scope."
        )
