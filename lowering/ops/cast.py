"""Copies: cast and assign."""

from __future__ import annotations

from lowering.dtypes import to_numpy
from lowering.program import OpSpec
from lowering.registry import Value, op


@op(rows="wise", fold=True)
def cast(x, *, out_dtype: int, in_dtype: int):
    """Out = X as data type ``out_dtype``."""
    del in_dtype
    return x.astype(to_numpy(out_dtype))


@cast.grad_maker
def _(g):
    attrs = dict(g.attrs, out_dtype=g.attrs["in_dtype"], in_dtype=g.attrs["out_dtype"])
    return [OpSpec("cast", {"X": g.output_grad("Out")}, {"Out": g.input_grad("X")}, attrs)]


@op(rows="wise", fold=True)
def assign(x: Value = None):
    """Out = X: a tensor, SelectedRows or a tensor array."""
    return x


@assign.grad_maker
def _(g):
    return [OpSpec("assign", {"X": g.output_grad("Out")}, {"Out": g.input_grad("X")}, dict(g.attrs))]
