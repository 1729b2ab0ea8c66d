"""Between a Scope and files: values taken out, and values held against their variables and put in, all or none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fluidjax.base.containers import SelectedRows
from fluidjax.base.enums import VarType, to_numpy_dtype
from fluidjax.base.errors import EnforceNotMet, explain
from fluidjax.base.scope import Scope, ScopeVariable
from fluidjax.base.values import LoDTensor
from fluidjax.files.errors import MismatchError, bad_file
from fluidjax.files.tensor import DenseValue, RowsValue, Value, encode
from fluidjax.framework import Variable
from lowering.engine.interrupts import uninterrupted
from lowering.program import PADDLE_2


class UninitializedVariableError(EnforceNotMet, RuntimeError):
    """A variable that is to be saved holds no value."""


def check_savable(scope: Scope, variables: Sequence[Variable]) -> None:
    """Raise, before anything is written, unless every variable holds a tensor or SelectedRows."""
    for var in variables:
        holder = _holder(scope, var.name)
        tensor = holder.get_tensor() if isinstance(holder, SelectedRows) else holder
        if not isinstance(tensor, LoDTensor):
            received = "no such variable" if holder is None else f"a {type(holder).__name__}"
        elif tensor._value is None:
            received = "a tensor that is not initialized"
        else:
            continue
        raise UninitializedVariableError(
            explain(
                f"variable {var.name!r} cannot be saved",
                "a value for it in the current scope",
                received,
                "run the startup program in this scope, or save in the scope the program was trained in",
            )
        )


def chunks_of(scope: Scope, name: str) -> Iterator[bytes | memoryview]:
    """The stream of a variable, made when it is iterated over."""
    yield from encode(value_of(scope, name))


def value_of(scope: Scope, name: str) -> Value:
    """The value of a variable that ``check_savable`` has seen."""
    holder = _holder(scope, name)
    if isinstance(holder, SelectedRows):
        return RowsValue(np.array(holder.get_tensor()), holder.rows(), holder.height())
    assert holder is not None
    return DenseValue(np.array(holder), holder.lod())


def _holder(scope: Scope, name: str) -> LoDTensor | SelectedRows | None:
    found = scope.find_var(name)
    return None if found is None else found._holder


def check_fits(var: Variable, value: Value, label: str) -> None:
    """MismatchError unless dtype and shape are those that the program declares (-1 is any size).

    Quantised programs of Paddle 2 declare weights as floating-point numbers and carry them as integers. Variables that
    are not persistable fit as they are: a program writes them before it reads them, so what a file of their name holds
    (``predicate=`` file exists, and another program kept its ``tmp_0``, a loss) comes to nothing.
    """
    sparse = isinstance(value, RowsValue)
    if sparse != (var.type == VarType.SELECTED_ROWS):
        kinds = ("SelectedRows", "a tensor")
        raise bad_file(f"{label}: variable {var.name!r} is of another kind", kinds[not sparse], kinds[sparse])
    if not var.persistable:
        return
    shape = (value.height, *value.array.shape[1:]) if isinstance(value, RowsValue) else value.array.shape
    stored = value.array.dtype
    quantised = stored.kind == "i" and var.block.program.proto.version.version >= PADDLE_2
    check_array_fits(var, shape, to_numpy_dtype(var.dtype) if quantised else stored, label)


def check_array_fits(var: Variable, shape: tuple[int, ...], dtype: np.dtype, label: str) -> None:
    """MismatchError unless dtype and shape are those that the program declares (-1 is any size).

    Paddle 2's quantisation declares the scales of N channels as [N] and saves them as [1, N]: dims of 1 do not count.
    """
    declared = tuple(var.shape)
    expected = to_numpy_dtype(var.dtype)
    newer = var.block.program.proto.version.version >= PADDLE_2
    if declared and not (_fits(declared, shape) or (newer and _fits(_long(declared), _long(shape)))):
        raise MismatchError(
            explain(
                f"{label}: the shape of {var.name!r} does not match",
                f"the program requires shape {declared}",
                f"shape {shape}",
                "load the file into the program it was saved from, or build the network with the same sizes",
            )
        )
    if dtype != expected and not _stored_short(var, dtype):
        raise MismatchError(
            explain(
                f"{label}: the data type of {var.name!r} does not match",
                f"the program requires {expected}",
                str(dtype),
                "load the file into the program it was saved from, or convert the values before saving",
            )
        )


def _fits(declared: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether the sizes agree; a number without dims, which no program can declare, is as good as one element."""
    if not shape:
        return all(d in (-1, 1) for d in declared)
    return len(declared) == len(shape) and all(d in (-1, s) for d, s in zip(declared, shape, strict=True))


def _long(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _stored_short(var: Variable, dtype: np.dtype) -> bool:
    """Whether the values are those of a weight that is stored in 8 or 16 bits, of which an op has the scale."""
    scale = f"{var.name}_quant_scale"
    return dtype in (np.int8, np.int16) and any(op.has_attr(scale) for op in var.block.ops)


def put(scope: Scope, values: Mapping[str, Value]) -> None:
    """Put values into the scope's variables (made where missing). What can fail is checked before the first is set."""
    with scope._lock:
        holders = {name: _place(scope, name, value) for name, value in values.items()}

        def fill() -> None:
            for name, value in values.items():
                _fill(holders[name], value)

        uninterrupted(fill)


def _fill(variable: ScopeVariable, value: Value) -> None:
    if isinstance(value, RowsValue):
        rows = variable.get_selected_rows()
        rows.set_rows(list(value.rows))
        rows.set_height(value.height)
        rows.get_tensor()._set_value(value.array)
    else:
        variable.get_tensor()._set_value(value.array, value.lod)


def _place(scope: Scope, name: str, value: Value) -> ScopeVariable:
    variable = scope.find_var(name) or scope.var(name)
    kind = SelectedRows if isinstance(value, RowsValue) else LoDTensor
    if variable._holder is not None and not isinstance(variable._holder, kind):
        raise MismatchError(
            explain(
                f"the scope's variable {name!r} cannot take a loaded value",
                f"nothing or a {kind.__name__} in it",
                f"a {type(variable._holder).__name__}",
                "load into a fresh scope (fluid.Scope)",
            )
        )
    return variable
