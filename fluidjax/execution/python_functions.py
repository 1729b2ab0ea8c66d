"""The Python functions of py_func ops, by number; ops hold the numbers, which mean nothing in another process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from fluidjax.base.containers import LoDTensorArray, SelectedRows
from fluidjax.base.errors import explain
from fluidjax.base.places import CPUPlace
from fluidjax.base.values import LoDTensor
from fluidjax.execution.scopes.exchange import to_holder, to_lowering
from fluidjax.files.trust import allow_host_ops, binding
from fluidjax.framework import Operator, Program
from lowering.engine.host import provide
from lowering.program import EMPTY

_functions: list[Callable[..., Any]] = []


def register(function: Callable[..., Any]) -> int:
    """The number of a function, new at each call. Raises TypeError when it cannot be called."""
    if not callable(function):
        raise TypeError(f"func must be a Python function, received {type(function).__name__}; pass a function")
    _functions.append(function)
    return len(_functions) - 1


def registered(number: int, kind: str = "py_func") -> Callable[..., Any]:
    """The function of that number; LookupError when this process has none. `kind` is the op that asks."""
    if not 0 <= number < len(_functions):
        raise LookupError(
            explain(
                f"{kind} calls function number {number}, which this process does not have",
                f"one of the {len(_functions)} functions that programs here were built with",
                "an op of a program built in another process, most likely",
                f"give it its function: fluid.io.bind_{kind}(program, output_name, function)",
            )
        )
    return _functions[number]


def require_values(kind: str, values: Sequence[Any], outputs: Sequence[str]) -> None:
    """Raise TypeError when an op that calls Python is where only traced values are."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree_util.tree_leaves(list(values))):
        raise TypeError(
            f"{kind} for {list(outputs)} is inside a loop or branch, where values are not known when it would run; "
            "expected it in the global block; move it out of the loop"
        )


def call(number: int, values: Sequence[Any], outputs: Sequence[str]) -> list[Any]:
    """Run a function on values of the lowering; its results as such values, one for each output."""
    require_values("py_func", values, outputs)
    function = registered(number)
    arguments = [None if value is None else to_holder(value) for value in values]
    result = function() if _takes_nothing(function) else function(*arguments)
    results = list(result) if isinstance(result, (list, tuple)) else [result]
    if not outputs:
        return []
    if len(results) != len(outputs):
        raise ValueError(
            f"py_func: {_name(function)} returned {len(results)} values, expected one for each of {list(outputs)}; "
            "return a tuple of as many values"
        )
    return [_value(function, r, name) for r, name in zip(results, outputs, strict=True)]


def _takes_nothing(function: Callable[..., Any]) -> bool:
    return not inspect.signature(function).parameters


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


def _value(function: Callable[..., Any], result: Any, name: str) -> Any:
    if result is None and name != EMPTY:
        raise ValueError(
            f"py_func: {_name(function)} returned None for {name!r}, expected an array or a LoDTensor; return a value"
        )
    if result is None or isinstance(result, (LoDTensor, LoDTensorArray, SelectedRows)):
        return to_lowering(result)
    tensor = LoDTensor()
    tensor.set(np.asarray(result), CPUPlace())
    return to_lowering(tensor)


def bind_py_func(
    program: Program, output_name: str, func: Callable[..., Any], backward_func: Callable[..., Any] | None = None
) -> None:
    """Give a py_func op of a loaded program its function, and permission to run it.

    Args:
        program: the program.
        output_name: the name of one of the op's outputs.
        func: what the op is to call.
        backward_func: what its gradient op is to call, for a backward pass that is still to be appended; a gradient op
            that the program has already is bound by the name of its own output (``x@GRAD``).

    Raises ValueError when no py_func writes that variable.
    """
    number = register(func)
    for op in _writers(program, output_name):
        op._set_attr("forward_callable_id", number)
        if backward_func is not None:
            op._set_attr("backward_callable_id", register(backward_func))
        allow_host_ops(program, [binding(op)])


def bind_py_layer(program: Program, output_name: str, layer: Any, **kwargs: Any) -> None:
    """Give a py_layer op of a loaded program its class, and permission to run it and its gradient op.

    Args:
        program: the program.
        output_name: the name of one of the op's outputs.
        layer: the PyLayer.
        kwargs: the other arguments of its forward.

    Raises ValueError when no py_layer writes that variable.
    """
    number = register(partial(layer, **kwargs))
    for op in _writers(program, output_name, "py_layer"):
        contexts = op.output("Ctx")
        gradients = [o for o in program.global_block().ops if o.type == "py_layer_grad" and o.input("Ctx") == contexts]
        for each in (op, *gradients):
            each._set_attr("forward_callable_id", number)
            allow_host_ops(program, [binding(each)])


def _writers(program: Program, name: str, kind: str = "py_func") -> list[Operator]:
    found = [op for b in program.blocks for op in b.ops if op.type == kind and name in op.output_arg_names]
    if not found:
        held = [n for b in program.blocks for op in b.ops if op.type == kind for n in op.output_arg_names]
        raise ValueError(
            f"no {kind} of the program writes {name!r}; expected one of {held or f'none, it has no {kind}'}; pass the "
            "name of an output of the op"
        )
    return found


provide("py_func", call)
