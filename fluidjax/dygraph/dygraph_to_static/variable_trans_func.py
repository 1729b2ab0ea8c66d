"""Program variables for Python names and numbers, and the statements that create them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from fluidjax.framework import Variable, default_main_program
from fluidjax.layers import tensor
from fluidjax.to_static.values import KINDS

__all__ = [
    "create_static_variable_gast_node", "data_layer_not_check", "to_static_variable_gast_node",
]  # fmt: skip


def data_layer_not_check(
    name: str, shape: Sequence[int | None], dtype: Any = "float32", lod_level: int = 0
) -> Variable:
    """Declare a fed variable, like ``fluid.data``, of any shape and dtype; feeds are not checked.

    Args:
        name: its name, also used as the key in feeds.
        shape: the dimensions; None or -1 if unknown.
        dtype: of the variable.
        lod_level: number of LoD levels.
    """
    return default_main_program().global_block().create_var(
        name=name,
        shape=[-1 if size is None else size for size in shape],
        dtype=dtype,
        lod_level=lod_level,
        stop_gradient=True,
        is_data=True,
        need_check_feed=False,
    )  # fmt: skip


def to_static_variable(x: Any) -> Any:
    """Convert a number or bool to a variable of shape [1]; anything else is returned unchanged."""
    dtype = KINDS.get(type(x))
    return x if dtype is None else tensor.fill_constant(shape=[1], dtype=dtype, value=x)


def create_static_variable_gast_node(name: str) -> ast.stmt:
    """The statement that binds a name to a fed variable of the same name, of shape [-1] and float32."""
    return _statement(f"{name} = {__name__}.data_layer_not_check(name={name!r}, shape=[-1], dtype='float32')")


def to_static_variable_gast_node(name: str) -> ast.stmt:
    """The statement that replaces a name's number by a variable."""
    return _statement(f"{name} = {__name__}.to_static_variable({name})")


def create_fill_constant_node(name: str, value: Any) -> ast.stmt | None:
    """The statement that binds a name to a variable holding a number or bool; None for any other value."""
    dtype = KINDS.get(type(value))
    if dtype is None:
        return None
    return _statement(f"{name} = fluid.layers.fill_constant(shape=[1], dtype={dtype!r}, value={value!r})")


def _statement(source: str) -> ast.stmt:
    return ast.parse(source).body[0]
