"""The same program in double precision, where finite differences are accurate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from lowering.dtypes import FP32, FP64
from lowering.program import BlockView, OpView, ProgramView

# Attributes that hold a data type's number.
_DTYPE_ATTRS = ("dtype", "in_dtype", "out_dtype")


def in_double(program: ProgramView) -> ProgramView:
    """A view of the program whose float32 variables and dtype attributes are float64."""
    return replace(program, blocks=tuple(_block(b) for b in program.blocks))


def _block(block: BlockView) -> BlockView:
    variables = {n: replace(v, dtype=FP64) if v.dtype == FP32 else v for n, v in block.vars.items()}
    return replace(block, ops=tuple(_op(op) for op in block.ops), vars=variables)


def _op(op: OpView) -> OpView:
    changed = {n: FP64 for n in _DTYPE_ATTRS if op.attrs.get(n) == FP32 and not isinstance(op.attrs[n], bool)}
    return replace(op, attrs={**op.attrs, **changed}) if changed else op


def to_double(value: Any) -> Any:
    """Float32 leaves of a value as float64."""

    def convert(leaf: Any) -> Any:
        array = np.asarray(leaf)
        return array.astype(np.float64) if array.dtype == np.float32 else leaf

    return jax.tree_util.tree_map(convert, value)


def to_single(value: Any) -> Any:
    """Float64 leaves of a value as float32."""

    def convert(leaf: Any) -> Any:
        array = np.asarray(leaf)
        return array.astype(np.float32) if array.dtype == np.float64 else leaf

    return jax.tree_util.tree_map(convert, value)
