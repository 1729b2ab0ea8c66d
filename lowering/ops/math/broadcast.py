"""Fluid's broadcasting of two operands: the smaller one's dimensions start at ``axis`` of the larger."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from lowering.dtypes import LOD_TENSOR
from lowering.errors import OpError
from lowering.program import EMPTY, OpView, VarInfo, VarOf

Shape = tuple[int, ...]


def _placed(small: Shape, rank: int, axis: int) -> Shape:
    """The shape of the smaller operand as seen by the larger: its dims start at ``axis``, ones elsewhere."""
    if axis == -1:
        axis = rank - len(small)
    axis = max(-2, min(axis, rank + 1))  # no axis fits from here on, and a damaged program's may be a large number
    if axis + len(small) > rank:
        kept = len(small)
        while kept and small[kept - 1] == 1:
            kept -= 1
        small = small[:kept]
        axis = axis if small else rank
    return (1,) * axis + tuple(small) + (1,) * (rank - axis - len(small))


def placed_pair(x: Shape, y: Shape, axis: int) -> tuple[Shape, Shape]:
    """X's and Y's shapes brought to one rank: the operand of smaller rank is aligned with ``axis`` of the other."""
    if len(x) >= len(y):
        return tuple(x), _placed(y, len(x), axis)
    return _placed(x, len(y), axis), tuple(y)


def infer_broadcast(
    dtype: int | None = None, *, as_x: bool = False, by_count: bool = False
) -> Callable[[OpView, VarOf], dict[str, VarInfo]]:
    """Shape inference of ops on two broadcast operands; the result has ``dtype``, or X's.

    An unknown dim beside a known one above 1 must be that one; beside 1, or another unknown, it stays unknown.
    With ``as_x``, what X does not know stays unknown: Fluid's comparisons declare X's shape. With ``by_count``, that is
    the shape of the result where Y has as many elements.
    """

    def infer(op: OpView, var_of: VarOf) -> dict[str, VarInfo]:
        found = (var_of(name) for slot in ("X", "Y") for name in op.inputs.get(slot, ()))
        operands = [var for var in found if var is not None and var.type == LOD_TENSOR]
        if len(operands) != 2:
            return {}
        x, y = operands
        shape = x.shape if by_count and _as_many(x.shape, y.shape) else _joined(op, x.shape, y.shape)
        if as_x and len(shape) == len(x.shape):
            shape = tuple(-1 if d < 0 else joined for d, joined in zip(x.shape, shape, strict=True))
        info = VarInfo(shape, x.dtype if dtype is None else dtype, x.lod_level)
        return {name: info for name in op.outputs.get("Out", ()) if name != EMPTY}

    return infer


def _as_many(x: Shape, y: Shape) -> bool:
    """Whether shapes have equally many elements, as far as they are known."""
    known = [sorted(n for n in shape if n != 1) for shape in (x, y)]
    return known[0] == known[1] or (min((*x, *y), default=0) >= 0 and prod(x) == prod(y))


def _joined(op: OpView, x: Shape, y: Shape) -> Shape:
    if x == y:  # unknown dims and all: operands of one shape have nothing to broadcast, whatever the axis
        return x
    axis = int(op.attrs.get("axis", -1))
    a, b = placed_pair(x, y, axis)
    fits = len(a) == len(b) and all(p == q or p < 0 or q < 0 or 1 in (p, q) for p, q in zip(a, b, strict=True))
    if not fits:
        raise OpError(
            f"op {op.type}: its operands do not broadcast.\n  expected: equal dims, or one of them 1, where Y begins at"
            f" axis {axis} of X (-1: at the end)\n  received: X {list(x)}, Y {list(y)}\n  to do: reshape one of them,"
            " or set axis"
        )
    return tuple(_dim(p, q) for p, q in zip(a, b, strict=True))


def _dim(p: int, q: int) -> int:
    if p >= 0 and q >= 0:
        return q if p == 1 else p
    known = max(p, q)
    return known if known > 1 else -1
