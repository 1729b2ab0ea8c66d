"""Tensors that are eager anywhere, and functions that run at once or write a program, whichever is meant.

A tensor has ``grad`` and ``mean()`` beyond a variable of eager mode, and computes outside of
``fluid.dygraph.guard()`` too.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any

import fluidjax.dygraph  # noqa: F401  (it gives VarBase its operators)
from fluidjax import layers
from fluidjax.eager.ambient import eager
from fluidjax.eager.variables.varbase import VarBase
from fluidjax.framework import Variable, default_main_program, guards, in_dygraph_mode

__all__ = ["Tensor", "surface", "surfaces"]


def _tensor(value: Any) -> Any:
    """Convert the output variable of an op to a tensor."""
    if type(value) is VarBase:
        value.__class__ = Tensor
    return value


def _at_once(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with eager():
            return _tensor(function(*args, **kwargs))

    return run


class Tensor(VarBase):
    """An eager variable that needs no guard."""

    __slots__ = ()

    @property
    def grad(self) -> Tensor | None:
        """The gradient computed by the last backward pass; None before."""
        with eager():
            return _tensor(self._grad_ivar())

    @_at_once
    def mean(self) -> Any:
        """The mean of all elements, of shape [1]."""
        return layers.mean(self)  # type: ignore[arg-type]  # it counts as a Variable

    def backward(self, backward_strategy: Any = None, retain_graph: bool = False) -> None:
        """See ``VarBase.backward``."""
        with eager():
            super().backward(backward_strategy, retain_graph)


def _give_operators() -> None:
    for name in dir(VarBase):
        method = getattr(VarBase, name)
        if name in _OPERATORS and callable(method):
            setattr(Tensor, name, _at_once(method))


_OPERATORS = frozenset(
    f"__{name}__"
    for name in (
        *("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "pow", "rpow", "floordiv", "mod"),
        *("eq", "ne", "lt", "le", "gt", "ge", "neg", "getitem"),
    )
) | {"astype"}
_give_operators()


_SYNONYMS = ({"x", "input"}, {"axis", "dim", "dims", "axes"}, {"keepdim", "keep_dim", "keepdims"}, {"y", "other"})


def surface(function: Callable[..., Any]) -> Callable[..., Any]:
    """A layer as ``paddle`` has it, for programs and at once.

    It runs at once where it is given tensors, or where nothing says that a program is being written. The names of
    arguments are those of either generation (``x`` or ``input``, ``axis`` or ``dim``), and every function takes
    ``out``, a variable that is to hold the result.
    """
    own = {name: _of_either_generation(name, function) for group in _SYNONYMS for name in group}
    takes_out = "out" in inspect.signature(function).parameters

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        given = {own.get(name, name): value for name, value in kwargs.items()}
        out = None if takes_out else given.pop("out", None)
        with _mode([*args, *given.values(), out]):
            result = function(*args, **given)
            return _tensors(result if out is None else layers.assign(result, out))

    return run


def surfaces(module: Any, names: str) -> list[Any]:
    """``surface`` of functions of a module, by their names."""
    return [surface(getattr(module, name)) for name in names.split()]


def _of_either_generation(name: str, function: Callable[..., Any]) -> str:
    """The parameter of a function that is meant by a name or one of its synonyms."""
    parameters = inspect.signature(function).parameters
    group = next(group for group in _SYNONYMS if name in group)
    found = group & set(parameters)
    return name if name in parameters or len(found) != 1 else found.pop()


def _tensors(value: Any) -> Any:
    return type(value)(map(_tensors, value)) if type(value) in (list, tuple) else _tensor(value)


def _mode(values: list[Any]) -> Any:
    flat = [v for value in values for v in (value if isinstance(value, (list, tuple)) else [value])]
    variables = [v for v in flat if isinstance(v, Variable)]
    written = not isinstance(variables[0], VarBase) if variables else _writes()
    return contextlib.nullcontext() if in_dygraph_mode() or written else eager()


def _writes() -> bool:
    """Whether a program is being written: another than the first, or the first and something is in it."""
    program = default_main_program()
    block = program.global_block()
    return program is not guards.FIRST_PROGRAM or bool(block.vars or block.ops)
