"""PyLayer: an op whose forward and backward passes are Python functions.

There are two styles. In the one with a context, ``apply`` runs ``forward`` on eager variables, and ``backward`` on
their gradients::

    class Tanh(PyLayer):
        @staticmethod
        def forward(ctx, x):
            y = fluid.layers.tanh(x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, dy):
            y, = ctx.saved_tensor()
            return dy * (1 - y * y)

    y = Tanh.apply(x)

In the older one, ``forward`` takes a list of arrays and ``backward`` a single list of inputs, outputs and output
gradients; an instance is called, and returns a list of variables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fluidjax import layers
from fluidjax.base.enums import to_numpy_dtype
from fluidjax.base.errors import explain
from fluidjax.eager.ambient import eager
from fluidjax.eager.functions.python_ops import record
from fluidjax.eager.variables.varbase import VarBase
from fluidjax.framework import Variable, default_main_program

__all__ = ["PyLayer", "PyLayerContext"]


class PyLayerContext:
    """Passes information from ``forward`` to ``backward``: saved variables, and any attributes set on it."""

    _saved: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Save variables for ``saved_tensor``; a second call replaces them. Raises TypeError for anything else."""
        for tensor in tensors:
            if not (tensor is None or isinstance(tensor, VarBase)):
                raise TypeError(
                    explain(
                        "ctx.save_for_backward was given something that is no variable",
                        "variables of eager mode, or None",
                        type(tensor).__name__,
                        "keep other things as attributes: ctx.name = value",
                    )
                )
        self._saved = tensors

    def saved_tensor(self) -> tuple[Any, ...]:
        """The saved variables."""
        return self._saved


class PyLayer:
    """An eager op written in Python; see the module. Its functions are static methods."""

    @staticmethod
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        """The outputs: a variable, or a tuple or list of them."""
        raise NotImplementedError("PyLayer.forward: expected a static method of the subclass, found none. Define it.")

    @staticmethod
    def backward(ctx: Any, *args: Any) -> Any:
        """The gradient of each variable argument of forward; None for one without."""
        raise NotImplementedError("PyLayer.backward: expected a static method of the subclass, found none. Define it.")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward(ctx, *args, **kwargs)``; gradients are propagated by ``backward(ctx, *gradients)``.

        Args:
            args, kwargs: variables, which receive gradients, and anything else, which is passed on.

        Returns the result of forward: a variable, or a tuple or list of them.

        Raises:
            TypeError: forward or backward returns something other than variables.
            ValueError: backward returns the wrong number of gradients, or one of the wrong shape.
        """
        if any(_is_static(value) for value in (*args, *kwargs.values())):
            return _written(cls, args, kwargs)
        ctx = PyLayerContext()
        inputs = [value for value in (*args, *kwargs.values()) if isinstance(value, VarBase)]
        with eager() as tracer:
            with tracer.no_grad():
                result = cls.forward(ctx, *args, **kwargs)
            several = isinstance(result, (tuple, list))
            outputs = [_output(cls, value, inputs) for value in (result if several else [result])]
            record(tracer, inputs, outputs, _gradients(cls, ctx, inputs, outputs))
        return type(result)(outputs) if several else outputs[0]

    def __call__(self, *inputs: Any) -> list[VarBase]:
        """The older style: call ``forward`` with the list of input arrays; returns a list of variables."""
        with eager() as tracer:
            variables = [v if isinstance(v, VarBase) else tracer.to_variable(np.asarray(v)) for v in inputs]
            given = [v.numpy() for v in variables]
            outputs = [VarBase(array) for array in as_arrays(type(self), "forward", type(self).forward(given))]

            def backward(grads: list[Any]) -> list[Any]:
                each = zip(outputs, grads, strict=True)
                douts = [np.zeros_like(o.numpy()) if g is None else g.numpy() for o, g in each]
                values = [*(v.numpy() for v in variables), *(o.numpy() for o in outputs), *douts]
                found = as_arrays(type(self), "backward", type(self).backward(values), optional=True)
                results = [None if g is None else VarBase(g) for g in found]
                check_count(type(self), variables, results)
                return results

            record(tracer, variables, outputs, backward)
        for output in outputs:
            output.stop_gradient = False
        return outputs


def _is_static(value: Any) -> bool:
    return isinstance(value, Variable) and not isinstance(value, VarBase)


def _written(cls: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """``apply`` while a static program is written: a py_layer op, whose outputs are determined by a run on zeros."""
    given = [*args, *kwargs.values()]
    variables = [v for v in given if isinstance(v, Variable)]
    for v in variables:
        if not v.shape or any(n < 0 for n in v.shape):
            raise ValueError(
                explain(
                    f"{cls.__name__}.apply was given {v.name} while a static program is written",
                    "variables all of whose dimensions are known, so that those of the results are",
                    f"shape {list(v.shape)}",
                    "make the results with block.create_var, and call fluid.layers.py_layer",
                )
            )

    class Bound(cls):
        """The class, its other arguments given."""

        @staticmethod
        def forward(ctx: Any, *values: Any) -> Any:
            taken = iter(values)
            full = [next(taken) if isinstance(v, Variable) else v for v in given]
            return cls.forward(ctx, *full[: len(args)], **dict(zip(kwargs, full[len(args) :], strict=True)))

    Bound.__qualname__, Bound.__module__ = cls.__qualname__, cls.__module__
    with eager() as tracer, tracer.no_grad():
        result = Bound.forward(PyLayerContext(), *[_zeros(list(v.shape), v.dtype) for v in variables])
    several = isinstance(result, (tuple, list))
    block = default_main_program().current_block()
    outputs = [block.create_var(dtype=r.dtype, shape=r.shape) for r in (result if several else [result])]
    layers.py_layer(Bound, variables, outputs)
    return type(result)(outputs) if several else outputs[0]


def _output(cls: type, value: Any, inputs: Sequence[VarBase]) -> VarBase:
    """An output as a separate variable; one that forward returns unchanged is copied."""
    if not isinstance(value, VarBase):
        raise TypeError(
            explain(
                f"{cls.__name__}.forward returned something that is no variable",
                "a variable, or a tuple or list of variables",
                type(value).__name__,
                "return variables; keep other results as attributes of ctx",
            )
        )
    used = value.persistable or value._place is not None or any(value is v for v in inputs) or not value.stop_gradient
    if not used:
        return value
    copy = value.detach()
    copy.__class__ = type(value)
    return copy


def _gradients(
    cls: Any, ctx: PyLayerContext, inputs: Sequence[VarBase], outputs: Sequence[VarBase]
) -> Callable[[list[Any]], list[Any]]:
    specs = [(o.shape, o.dtype) for o in outputs]
    kinds = [type(o) for o in outputs]

    def backward(grads: list[Any]) -> list[Any]:
        given = []
        for grad, (shape, dtype), kind in zip(grads, specs, kinds, strict=True):
            variable = _zeros(shape, dtype) if grad is None else grad
            if type(variable) is VarBase:
                variable.__class__ = kind
            given.append(variable)
        found = cls.backward(ctx, *given)
        results = list(found) if isinstance(found, (tuple, list)) else [found]
        check_count(cls, inputs, results)
        for variable, result in zip(inputs, results, strict=True):
            _check_gradient(cls, variable, result)
        return results

    return backward


def _zeros(shape: list[int], dtype: Any) -> VarBase:
    return VarBase(np.zeros(shape, to_numpy_dtype(dtype)))


def check_count(cls: type, inputs: Sequence[VarBase], results: Sequence[Any]) -> None:
    """Raise ValueError unless there is one gradient per input."""
    if len(results) != len(inputs):
        raise ValueError(
            explain(
                f"{cls.__name__}.backward returned the wrong number of gradients",
                f"{len(inputs)}, one for each variable that forward was given",
                str(len(results)),
                "return None for a variable that has no gradient, and nothing for other arguments",
            )
        )


def _check_gradient(cls: type, variable: VarBase, result: Any) -> None:
    if result is None:
        return
    if not isinstance(result, VarBase):
        raise TypeError(
            explain(
                f"{cls.__name__}.backward returned something that is no variable",
                "variables of eager mode, or None",
                type(result).__name__,
                "make it one with fluid.dygraph.to_variable",
            )
        )
    if list(result.shape) != list(variable.shape) or result.dtype != variable.dtype:
        raise ValueError(
            explain(
                f"{cls.__name__}.backward returned a gradient that does not fit {variable.name}",
                f"{variable.dtype} {variable.shape}",
                f"{result.dtype} {result.shape}",
                "return the gradients in the order of forward's variables, each like its variable",
            )
        )


def as_arrays(layer: type, method: str, result: Any, optional: bool = False) -> list[Any]:
    """The result of a function in the older style, as arrays."""
    found: list[Any] = []
    for value in result if isinstance(result, (tuple, list)) else [result]:
        if value is None and optional:
            found.append(None)
            continue
        array = np.asarray(value)
        if array.dtype == object:
            raise TypeError(
                explain(
                    f"{layer.__name__}.{method} returned something that is no array",
                    "an array, or a tuple or list of arrays",
                    type(value).__name__,
                    "return NumPy arrays",
                )
            )
        found.append(array)
    return found
