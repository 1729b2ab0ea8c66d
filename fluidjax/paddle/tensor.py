"""The small part of Paddle 2's ``paddle`` namespace used by PyLayer scripts: tensors that are always eager.

This is not Paddle 2: only ``randn``, ``ones``, ``tanh``, ``square``, and the attributes ``grad`` and ``mean()`` that
tensors have in addition to eager variables. Such tensors also compute outside ``fluid.dygraph.guard()``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import fluidjax.dygraph  # noqa: F401  (it gives VarBase its operators)
from fluidjax import layers
from fluidjax.eager.ambient import eager
from fluidjax.eager.varbase import VarBase
from fluidjax.framework import Variable

__all__ = ["Tensor", "ones", "randn", "square", "tanh"]


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


def randn(shape: Sequence[int], dtype: Any = None) -> Any:
    """Values from the standard normal distribution, float32 unless `dtype` is given."""
    with eager():
        return _tensor(layers.gaussian_random(list(shape), dtype=dtype or "float32"))


def ones(shape: Sequence[int], dtype: Any = None) -> Any:
    """A tensor of ones, float32 unless `dtype` is given."""
    with eager():
        return _tensor(layers.ones(list(shape), dtype or "float32"))


def _one_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any, name: str | None = None) -> Any:
        if isinstance(x, Variable) and not isinstance(x, VarBase):
            return function(x, name=name)
        with eager():
            return _tensor(function(x, name=name))

    run.__name__ = function.__name__
    run.__doc__ = f"``fluid.layers.{function.__name__}``, at once for tensors."
    return run


tanh = _one_argument(layers.tanh)
square = _one_argument(layers.square)
